"""A proposal as the text of a rule file: rules with the reasons for them, and items that were not understood."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from projections.init.proposal import Attribute, Entity, Pairs, Proposal, Rule, Table, Unknown
from projections.language.files import flow, text
from projections.language.syntax import an
from projections.printable import printable

_WIDTH = 118


def rule_file(*proposals: Proposal, head: Sequence[str] = ()) -> str:
    """Return the rule file of these tables. All rules are held; those with a doubt are comments.

    `head` are paragraphs of its first comment; without them it describes the sample that a proposal was inferred from.
    """
    several = len(proposals) > 1
    lines = [*(_paragraphs(head) if head else _head(proposals[0])), "", *_tables(proposals), "", "entities:"]
    for proposal in proposals:
        for entity in proposal.entities:
            lines += [*_entity(entity, proposal, several), ""]
    lines += _unknown([unknown for proposal in proposals for unknown in proposal.unknown])
    rules = [rule for proposal in proposals for rule in proposal.rules]
    active = [rule for rule in rules if not rule.doubt]
    table = proposals[0].table.name
    if active:
        lines += ["projections:"]
        for rule in active:
            lines += [*_comment(_sentence(rule.evidence), "  "), *_rule(rule), ""]
    commented = sorted((rule for rule in rules if rule.doubt), key=lambda rule: rule.state == "possible")
    if commented:
        lines += [] if active else ["# projections:"]
        where = "" if active else ", below a line `projections:`"
        lines += _comment(
            "Possible rules, and uncertain ones: most items of the sample agree with these, and some contradict them. The "
            f"output of `projections init` has these items. To try a rule, remove its # signs{where}. It is held, "
            f"too: `projections verify --table {table}` lists all values that it would change, also before you deploy.",
            "  ",
        )
        lines += [line for rule in commented for line in _as_comment(rule)]
    if not rules:
        why = "" if head else ": nothing in the sample looks like a counter, a copy or an attribute of a parent"
        lines += _comment(f"No rules are proposed{why}. docs/rules.md of dynamodb-projections describes all rules.")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _as_comment(rule: Rule) -> Iterator[str]:
    yield from _comment(f"{_sentence(rule.evidence)} {_capital(_sentence(rule.doubt))}".strip(), "  ")
    yield from (f"  # {line[2:]}" for line in _rule(rule))
    yield ""


def _paragraphs(head: Sequence[str]) -> Iterator[str]:
    for number, words in enumerate(head):
        listed = words.startswith("- ")
        if number and not listed:
            yield "#"
        yield from textwrap.wrap(
            printable(words), _WIDTH, initial_indent="# ", subsequent_indent="#   " if listed else "# "
        )


def _comment(words: str, indent: str = "") -> list[str]:
    """Return lines of a comment. Names may contain characters that end a line in YAML, or that YAML does not allow."""
    return textwrap.wrap(printable(words), _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _head(proposal: Proposal) -> Iterator[str]:
    table = proposal.table
    all_of = "all" if proposal.complete else "a sample of"
    yield from _comment(
        f"A proposal, made by `projections init --table {table.name}` from {all_of} {proposal.sampled:,} items; "
        f"{proposal.recognised:,} of them belong to the entities below. Check it: what was inferred may be wrong."
    )
    yield "#"
    yield from _comment(
        "Every rule is held: it maintains the ledger but publishes nothing. Deploy and run `projections apply`, and "
        "`projections verify` compares the values of the rules with those that your application wrote. When you trust a "
        "rule, stop writing the attribute yourself and remove its line `hold: true`, and apply again."
    )
    if proposal.deployed:
        yield "#"
        yield from _comment(
            f"Rules that are deployed already maintain attributes of this table: {', '.join(proposal.deployed)} (by their "
            "guards). Compare the rules below with the deployed rule file: an attribute has one writer."
        )
    yield "#"
    yield "#   projections check                   # each rule with its keys and cost"
    yield "#   python -m pytest                    # the rules as if they were live"


# --- the table ---


def _tables(proposals: Sequence[Proposal]) -> Iterator[str]:
    if len(proposals) == 1:
        yield "table:"
        yield from _table(proposals[0])
        return
    yield "tables:"
    for proposal in proposals:
        yield f"  {text(proposal.table.name)}:"
        yield from (f"  {line}" for line in _table(proposal))


def _table(proposal: Proposal) -> Iterator[str]:
    table = proposal.table
    yield f"  key: {_pairs(table.key)}"
    if table.indexes:
        yield "  indexes:"
    for index in table.indexes:
        yield f"    {text(index)}: {_index(table, index)}"
    if table.ttl:
        yield f"  ttl: {text(table.ttl)}"
    if proposal.separator != "#":
        yield f"  separator: {text(proposal.separator)}"
    if table.stream != "NEW_AND_OLD_IMAGES":
        has = f"carries {table.stream}" if table.stream else "is off"
        yield f"  # The stream of {table.name} {has}. Enable it with NEW_AND_OLD_IMAGES before you deploy."


def _index(table: Table, index: str) -> str:
    partition, sort = table.indexes[index]
    parts = {}
    if len(partition) > 1 or len(sort) > 1 or index in table.projected or index in table.local:
        if index not in table.local:
            parts["partition"] = _pairs(partition)
        if sort:
            parts["sort"] = _pairs(sort)
    if index in table.projected:
        keys = {*table.key_names, *(key for key, _ in (*partition, *sort))}  # a rule file does not list them
        listed = table.projected[index]
        projected = [attribute for attribute in listed if attribute not in keys] if isinstance(listed, tuple) else []
        parts["projection"] = flow(projected) if projected else "keys_only"
    if index in table.local:
        parts["local"] = "true"
    if not parts:
        return _pairs((*partition, *sort))
    return "{ " + ", ".join(f"{part}: {value}" for part, value in parts.items()) + " }"


def _pairs(pairs: Pairs) -> str:
    if all(kind == "S" for _, kind in pairs):
        return flow([attribute for attribute, _ in pairs])
    return flow(dict(pairs))


# --- entities ---


def _entity(entity: Entity, proposal: Proposal, several: bool) -> Iterator[str]:
    counted = f"{_items(entity.items)}. " if entity.items else ""
    yield from _comment(f"{counted}{_attributes(entity.attributes)}", "  ")
    for relation in proposal.relations:
        if relation.child == entity.name:
            through = ", ".join(dict.fromkeys(relation.binding.values()))
            yield from _comment(
                f"{through} references {an(relation.parent)}: {relation.seen} of {relation.of} are in the sample.", "  "
            )
    for note in entity.notes:
        yield from _comment(note, "  ")
    form: dict[str, object] = {"table": proposal.table.name} if several else {}
    form["key"] = dict(entity.key)
    if entity.match:
        attribute, kind = entity.match
        form["match"] = {attribute: kind if kind.isprintable() else [kind]}
    if entity.expires:
        form["expires"] = True
    if entity.required:
        form["required"] = list(entity.required)
    if entity.index_key:
        form["index_key"] = dict(entity.index_key)
    line = f"  {text(entity.name)}: {flow(form)}"
    if len(line) <= _WIDTH:
        yield line
        return
    yield f"  {text(entity.name)}:"
    for part, value in form.items():
        yield from _member(part, value)


def _attributes(attributes: Sequence[Attribute]) -> str:
    if not attributes:
        return "No attributes besides the key."
    names = [f"{attribute.name} {_kind(attribute)}{_share(attribute)}" for attribute in attributes[:24]]
    others = f" and {len(attributes) - 24} more" if len(attributes) > 24 else ""
    return "Attributes: " + ", ".join(names) + others + "."


def _kind(attribute: Attribute) -> str:
    return attribute.type if attribute.form in ("text", "ttl") else f"{attribute.type} ({attribute.form})"


def _share(attribute: Attribute) -> str:
    return "" if attribute.seen == attribute.of else f" in {attribute.seen} of {attribute.of}"


def _unknown(unknown: Sequence[Unknown]) -> Iterator[str]:
    if not unknown:
        return
    yield from _comment(
        "Not understood (keys are masked: x for letters, 9 for digits). Rules do not read or write items that belong to no "
        "entity.",
        "  ",
    )
    for unknown_items in unknown:
        key = ", ".join(f"{attribute} {text(value)}" for attribute, value in unknown_items.key.items())
        yield from _comment(f"- {_items(unknown_items.items)} such as {key}: {unknown_items.why}.", "  ")
    yield ""


# --- rules ---


def _rule(rule: Rule) -> Iterator[str]:
    yield f"  {text(rule.name)}:"
    for part, value in _with_hold(rule.body).items():
        yield from _member(part, value)


def _member(part: str, value: object) -> Iterator[str]:
    """Yield a part of a rule or entity, on one line if it is short enough."""
    line = f"    {text(part)}: {flow(value)}"
    if len(line) <= _WIDTH or not isinstance(value, Mapping):
        yield line
        return
    yield f"    {text(part)}:"
    for key, content in value.items():
        yield f"      {text(key)}: {flow(content)}"


def _with_hold(body: Mapping[str, object]) -> dict[str, object]:
    return {"from": body["from"], "hold": True, **{key: value for key, value in body.items() if key != "from"}}


def _sentence(words: str) -> str:
    return words + "." if words else ""


def _items(number: int) -> str:
    return f"{number:,} item" + "s" * (number != 1)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
