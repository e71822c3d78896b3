"""A proposal as the text of a rule file: rules with the reasons for them, and items that were not understood."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from projections.init.proposal import Entity, Proposal, Rule, Table, Unknown
from projections.language.files import block, text
from projections.language.forms import IndexKeys, index_form, key_form
from projections.printable import printable

_WIDTH = 118


def rule_file(*proposals: Proposal, head: Sequence[str] = ()) -> str:
    """Return the rule file of these tables. All rules are held; those with a doubt are comments.

    `head` are paragraphs of its first comment; without them it describes the sample that a proposal was inferred from.
    """
    several = len(proposals) > 1
    lines = [*_paragraphs(head or list(_head(proposals[0]))), "", *_tables(proposals), "", "entities:"]
    for proposal in proposals:
        for entity in proposal.entities:
            lines += [*_entity(entity, proposal.table.name if several else None), ""]
    lines += _unknown([unknown for proposal in proposals for unknown in proposal.unknown])
    rules = [rule for proposal in proposals for rule in proposal.rules]
    active = [rule for rule in rules if not rule.doubt]
    if active:
        lines += ["projections:"]
        for rule in active:
            lines += [*_comment(f"{rule.evidence}.", "  "), *_rule(rule), ""]
    commented = sorted((rule for rule in rules if rule.doubt), key=lambda rule: rule.state == "possible")
    if commented:
        lines += [] if active else ["# projections:"]
        where = "" if active else ", below a line `projections:`"
        lines += _comment(
            "Possible rules, and uncertain ones: most items of the sample agree with these, and some contradict them. The "
            f"output of `projections init` has these items. To try a rule, remove its # signs{where}. It is held, too: "
            f"`projections verify --table {proposals[0].table.name}` lists all values that it would change, also before you "
            "deploy.",
            "  ",
        )
    for rule in commented:
        lines += _comment(f"{rule.evidence}. {rule.doubt[0].upper()}{rule.doubt[1:]}.", "  ")
        lines += [*(f"  # {line[2:]}" for line in _rule(rule)), ""]
    if not rules:
        why = "" if head else ": nothing in the sample looks like a counter, a copy or an attribute of a parent"
        lines += _comment(f"No rules are proposed{why}. docs/rules.md of dynamodb-projections describes all rules.")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _paragraphs(head: Sequence[str]) -> Iterator[str]:
    for number, words in enumerate(head):
        listed = words.startswith("- ")
        if number and not listed:
            yield "#"
        yield from _comment(words, hanging="  " if listed else "")


def _comment(words: str, indent: str = "", hanging: str = "") -> list[str]:
    """Return lines of a comment. Names may contain characters that end a line in YAML, or that YAML does not allow."""
    first = f"{indent}# "
    return textwrap.wrap(printable(words), _WIDTH, initial_indent=first, subsequent_indent=first + hanging)


def _head(proposal: Proposal) -> Iterator[str]:
    all_of = "all" if proposal.complete else "a sample of"
    yield (
        f"A proposal, made by `projections init --table {proposal.table.name}` from {all_of} {proposal.sampled:,} items; "
        f"{proposal.recognised:,} of them belong to the entities below. Check it: what was inferred may be wrong."
    )
    yield (
        "Every rule is held: it maintains the ledger but publishes nothing. Deploy and run `projections apply`, and "
        "`projections verify` compares the values of the rules with those that your application wrote. When you trust a "
        "rule, stop writing the attribute yourself and remove its line `hold: true`, and apply again."
    )
    if proposal.deployed:
        yield (
            f"Deployed rules have written guards to items of this table: {', '.join(proposal.deployed)}. Compare the rules "
            "below with the deployed rule file: an attribute has one writer."
        )
    yield "- `projections check`: each rule with its keys and cost"
    yield "- `python -m pytest`: the rules as if they were published"


# --- the table ---


def _tables(proposals: Sequence[Proposal]) -> Iterator[str]:
    tables = {proposal.table.name: _table(proposal) for proposal in proposals}
    yield block({"tables": tables} if len(tables) > 1 else {"table": _table(proposals[0])}, _WIDTH)
    for table in (proposal.table for proposal in proposals):
        if table.stream != "NEW_AND_OLD_IMAGES":
            has = f"carries {table.stream}" if table.stream else "is off"
            yield from _comment(
                f"The stream of {table.name} {has}. Enable it with NEW_AND_OLD_IMAGES before you deploy.", "  "
            )


def _table(proposal: Proposal) -> dict[str, Any]:
    table = proposal.table
    form: dict[str, Any] = {"key": key_form(table.key)}
    if table.indexes:
        form["indexes"] = {index: _index(table, index) for index in table.indexes}
    if table.ttl:
        form["ttl"] = table.ttl
    if proposal.separator != "#":
        form["separator"] = proposal.separator
    return form


def _index(table: Table, index: str) -> Any:
    partition, sort = table.indexes[index]
    projection = table.projected.get(index, "all")
    if isinstance(projection, tuple):
        keys = {*table.key_names, *(key for key, _ in (*partition, *sort))}  # a rule file does not list them
        projection = tuple(attribute for attribute in projection if attribute not in keys) or "keys_only"
    return index_form(IndexKeys(partition, sort, projection, index in table.local))


# --- entities ---


def _entity(entity: Entity, table: str | None) -> Iterator[str]:
    counted = f"{_items(entity.items)}. " if entity.items else ""
    shares = {each.name: f" in {each.seen} of {entity.items}" for each in entity.attributes if each.seen < entity.items}
    names = [f"{each.name} {each.type}{shares.get(each.name, '')}" for each in entity.attributes]
    yield from _comment(f"{counted}Attributes: {', '.join(names) or 'none besides the key'}.", "  ")
    for note in entity.notes:
        yield from _comment(note, "  ")
    form: dict[str, Any] = {"table": table} if table else {}
    form["key"] = entity.key
    if entity.match:
        attribute, kind = entity.match
        form["match"] = {attribute: kind if kind.isprintable() else [kind]}
    parts = {"expires": entity.expires, "required": entity.required, "index_key": entity.index_key}
    form |= {name: part for name, part in parts.items() if part}
    yield block({entity.name: form}, _WIDTH, "  ")


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


def _rule(rule: Rule) -> list[str]:
    body: Mapping[str, Any] = {"from": rule.body["from"], "hold": True, **rule.body}
    return [f"  {text(rule.name)}:", *block(body, _WIDTH, "    ").split("\n")]


def _items(number: int) -> str:
    return f"{number:,} item" + "s" * (number != 1)
