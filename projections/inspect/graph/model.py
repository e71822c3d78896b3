"""What a picture of rules shows: entities with their keys, and rules from one to another. Frozen values, no places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from projections.inspect.lineage import Origin, origins, resolved_key, target_of
from projections.inspect.paths import Path, path_of
from projections.language.findings import Finding
from projections.language.models import Rules
from projections.language.ownership import chains, follows
from projections.language.patterns import Pattern, describe

__all__ = ["Entity", "Graph", "Rule", "graph_of"]

_SHORT = 22

Document = Mapping[str, Any]
Key = tuple[tuple[str, str], ...]
"""(attribute, template) of each attribute of a key."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity. `role` is `application`, `copy` or `derived`: who creates its items.

    `attributes` are those that rules write: (name, how it comes about, rule).
    """

    name: str
    role: str
    table: str
    key: Key
    match: str | None
    id: str | None
    expires: bool
    index_key: Key
    attributes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, with everything that is to be said of it.

    `gist` is what it makes, in a word or two; `sentence` says it in one; `where` and `each` are in words. `key` is that of
    its target as templates over its source, except for an embed, whose `match` says which children it is about; `indexes`
    are those that an index rule sets keys of, `cases` what it sets under which condition.
    """

    name: str
    kind: str
    source: str
    target: str
    gist: str
    sentence: str
    key: Key
    match: Key
    where: str | None
    each: str | None
    indexes: tuple[str, ...]
    cases: tuple[tuple[str | None, Key], ...]
    writes: tuple[tuple[str, str], ...]
    mode: str
    expired: str | None
    path: Path
    after: tuple[str, ...]
    passes: int
    findings: tuple[Finding, ...]

    @property
    def inside(self) -> bool:
        """Whether it writes on the items it reads, so that no line leads anywhere."""
        return self.source == self.target


@dataclass(frozen=True, slots=True)
class Graph:
    """Entities and rules by name, in the order of the file. `findings` are those that stand in no rule."""

    title: str
    entities: Mapping[str, Entity]
    rules: Mapping[str, Rule]
    findings: tuple[Finding, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entity.table for entity in self.entities.values()))

    def inside(self, entity: str) -> tuple[Rule, ...]:
        """The rules that work within an entity."""
        return tuple(rule for rule in self.rules.values() if rule.inside and rule.source == entity)

    def document(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "title": self.title,
            "entities": [asdict(entity) for entity in self.entities.values()],
            "rules": [asdict(rule) for rule in self.rules.values()],
            "findings": [asdict(finding) for finding in self.findings],
        }


def graph_of(rules: Rules, title: str, findings: Sequence[Finding] = ()) -> Graph:
    """The graph of rules without mistakes, with what was found in them."""
    document = rules.canonical()
    written = origins(document)
    copied = {rule["into"] for rule in document["projections"].values() if rule["kind"] == "copy"}
    before, passes = follows(rules), chains(rules)
    return Graph(
        title=title,
        entities={name: _entity(document, name, written[name], name in copied) for name in document["entities"]},
        rules={
            name: Rule(
                name=name,
                kind=rule["kind"],
                source=rule["from"],
                target=target_of(rule),
                gist=_gist(rule, _indexes(document, rule)),
                sentence=_sentence(rule, _indexes(document, rule)),
                key=tuple(resolved_key(document, name).items()),
                match=tuple(rule.get("match", {}).items()),
                where=_words(rule["where"]),
                each=_each(rule),
                indexes=_indexes(document, rule),
                cases=tuple((_words(case["where"]), tuple(case["set"].items())) for case in rule.get("cases", ())),
                writes=tuple((a, o.how) for a, o in written[target_of(rule)].items() if o.rule == name),
                mode=rule["mode"],
                expired=rule["expired"],
                path=path_of(document, name),
                after=before[name],
                passes=len(passes[name]),
                findings=tuple(finding for finding in findings if finding.rule == name),
            )
            for name, rule in document["projections"].items()
        },
        findings=tuple(finding for finding in findings if finding.rule is None),
    )


def _entity(document: Document, name: str, written: Mapping[str, Origin], copied: bool) -> Entity:
    entity = document["entities"][name]
    return Entity(
        name=name,
        role="copy" if copied else "derived" if entity["derived"] else "application",
        table=entity["table"],
        key=tuple(entity["key"].items()),
        match=_words(entity["match"]),
        id=entity["id"],
        expires=entity["expires"],
        index_key=tuple(entity["index_key"].items()),
        attributes=tuple((attribute, origin.how, origin.rule) for attribute, origin in written.items()),
    )


def _indexes(document: Document, rule: Document) -> tuple[str, ...]:
    """The indexes that an index rule sets keys of."""
    if rule["kind"] != "index":
        return ()
    written = {attribute for case in rule["cases"] for attribute in case["set"]}
    table = document["tables"][document["entities"][rule["from"]]["table"]]
    return tuple(
        name
        for name, keys in table["indexes"].items()
        if written & {attribute for part in (keys["partition"], keys["sort"]) for attribute, _ in part}
    )


# --- in words ---


def _words(pattern: Document | None) -> str | None:
    return describe(Pattern.parse(pattern)) if pattern else None


def _gist(rule: Document, indexes: Sequence[str]) -> str:
    match rule["kind"]:
        case "copy":
            if rule["attributes"] == "all":
                return "all attributes"
            return _some([*rule["attributes"], *rule["values"]])
        case "aggregate":
            return _some(list(rule["set"]))
        case "top":
            return f"{rule['limit']} as {rule['as']}"
        case "index":
            return ", ".join(indexes)
    return _some(list(rule["attributes"]))


def _some(names: Sequence[str]) -> str:
    """The names, or the first and how many more."""
    text = ", ".join(names)
    return text if len(names) == 1 or len(text) <= _SHORT else f"{names[0]} and {len(names) - 1} more"


def _sentence(rule: Document, indexes: Sequence[str]) -> str:
    source, target = rule["from"], target_of(rule)
    match rule["kind"]:
        case "copy":
            what = "all attributes of" if rule["attributes"] == "all" else "attributes of"
            return f"Keeps {what} each {source} under another key, as a {target}."
        case "aggregate":
            return f"Keeps {_and(list(rule['set']))} on each {target}, computed from its {source} items."
        case "top":
            return f"Lists the {_extreme(rule)} {rule['limit']} {source} items by {rule['by']} on each {target}."
        case "latest":
            return f"Keeps attributes of the {source} with the {_extreme(rule)} {rule['by']} on each {target}."
        case "index":
            return f"Sets the keys of {_and(indexes)} on {source} items, so that they are found there."
    return f"Keeps attributes of each {source} in all {target} items that reference it."


def _extreme(rule: Document) -> str:
    return "greatest" if rule["order"] == "desc" else "least"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _each(rule: Document) -> str | None:
    each = rule["each"]
    if each is None:
        return None
    if each["ancestors"]:
        return f"each folder above {each['path']}, as {{{each['variable']}}}"
    return f"each element of {each['path']}, as {{{each['variable']}}}"
