"""Selections of rules, as `--select` has them: by name, tag and owner, with the rules before or after them.

likes, tag:counters, owner:feed-team    these rules
+ranking                                and the rules that it depends on, directly or not
likes+                                  and the rules that depend on it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from projections.errors import UsageError
from projections.language.canonical import Document
from projections.language.document import Rules
from projections.language.ownership import EXISTS, inputs
from projections.language.rewriting import written
from projections.language.syntax import suggest

__all__ = ["missing", "readers", "restricted", "selected"]

_BY = ("tag:", "owner:")


def selected(document: Document, terms: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the selected rules in the order of the file; none without terms.

    A term may be several, separated by commas. Raises UsageError if a term selects no rule.
    """
    terms = [term.strip() for text in terms for term in text.split(",") if term.strip()]
    if not terms:
        return ()
    names: set[str] = set()
    for term in terms:
        body = term.removeprefix("+").removesuffix("+")
        found = set(_named(document, body))
        if term.startswith("+"):
            names |= _closure(found, _before(document))
        if term.endswith("+"):
            names |= _closure(found, _after(document))
        names |= found
    return tuple(name for name in document.rules if name in names)


def _named(document: Document, body: str) -> list[str]:
    kind = next((kind for kind in _BY if body.startswith(kind)), "")
    value = body.removeprefix(kind)
    if kind == "tag:":
        return _with(document, "tag", value, lambda name: document.about_rule(name).tags)
    if kind == "owner:":
        return _with(document, "owner", value, lambda name: filter(None, [document.about_rule(name).owner]))
    if body not in document.rules:
        hint = suggest(body, list(document.rules)) or f"; the rules are {', '.join(document.rules) or 'none'}"
        raise UsageError(f'unknown rule "{body}"{hint}')
    return [body]


def _with(document: Document, what: str, value: str, values: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the rules that have a tag or owner. Raises UsageError if there are none."""
    found = [name for name in document.rules if value in values(name)]
    if not found:
        known = list(dict.fromkeys(one for name in document.rules for one in values(name)))
        if not known:
            raise UsageError(f'no rule has the {what} "{value}"; no rule has any {what}')
        hint = suggest(value, known) or f"; the {what}s are {', '.join(known)}"
        raise UsageError(f'no rule has the {what} "{value}"{hint}')
    return found


def _before(document: Document) -> Mapping[str, Iterable[str]]:
    """Return for each rule those that write, or create, what it reads."""
    return inputs(Rules.model_validate(written(document), by_alias=True, by_name=False))


def _after(document: Document) -> Mapping[str, Iterable[str]]:
    before = _before(document)
    return {name: [other for other, needed in before.items() if name in needed] for name in before}


def readers(document: Document, names: Iterable[str]) -> list[str]:
    """Return the rules that read what these rules write; names of rules that do not exist are ignored."""
    after = _after(document)
    return list(dict.fromkeys(reader for name in names for reader in after.get(name, ())))


def _closure(names: Iterable[str], following: Mapping[str, Iterable[str]]) -> set[str]:
    found = list(names)
    for name in found:
        found += [other for other in following[name] if other not in found]
    return set(found)


def missing(document: Document, names: Iterable[str]) -> list[str]:
    """Return for each selected rule that reads what a rule writes that is not selected: a sentence about it."""
    chosen = tuple(names)
    given = inputs(Rules.model_validate(written(document), by_alias=True, by_name=False)) if chosen else {}
    sentences = []
    for name in chosen:
        for other, nodes in given[name].items():
            if other in chosen:
                continue
            into = document.rules[other].into
            read = [f"{into}.{attribute}" for _, attribute in nodes if attribute != EXISTS]
            what = ", ".join(read) or f"{into} items"
            sentences.append(
                f"{name} reads {what}, which rule {other} writes. {other} is not selected, so its values are not computed: "
                f"pass --select +{name} to run both rules"
            )
    return sentences


def restricted(document: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the canonical document with these rules only."""
    chosen = set(names)
    return {**document, "projections": {name: rule for name, rule in document["projections"].items() if name in chosen}}
