"""The explanation of one item, as JSON and on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from projections.cli.printing.verify import difference
from projections.engine.registry import LIVE
from projections.inspect.explain.facts import Attribute, Copied, Derived, ItemExplanation, Source
from projections.inspect.explain.sources import difference_words
from projections.inspect.explain.words import (
    encoded_words,
    group_version,
    json_words,
    key_words,
    stream_version,
    version_words,
)
from projections.language.facts import EVERY, origins
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.operations.verify.drift import KINDS, REPAIRS
from projections.terminal import Styled, console, count, styled

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["item_document", "print_item"]

GROUPS_HAVE_NO_TIME = "the version of a group counts the transactions that changed it; it is not a time"
SEQUENCES_HAVE_NO_TIME = (
    "a sequence number orders the changes of an item; its time is known only to be after the creation of the stream"
)


# For programs


def item_document(report: ItemExplanation) -> dict[str, Any]:
    """Return what `explain --item --json` prints."""
    return {
        "key": encode_key(report.key),
        "exists": report.image is not None,
        "entity": report.item.entity.name if report.item is not None else None,
        "variables": dict(report.item.variables) if report.item is not None else {},
        "agrees": report.agrees,
        "drift": [drift.document() for drift in report.drifts],
        "leftOver": [drift.document() for drift in report.left_over],
        "underOtherRules": report.other_rules,
        "missingCopyOf": list(report.missing_copy_of),
        "derived": [_derived(one) for one in report.derived],
        "source": _source(report.source) if report.source is not None else None,
    }


def _version(text: str) -> dict[str, Any] | None:
    """Return a version with its parts."""
    return {"version": text, **(group_version(text) or stream_version(text) or {})} if text else None


def _attributes(attributes: tuple[Attribute, ...]) -> list[dict[str, Any]]:
    return [{"name": a.name, "shown": a.shown, "expected": a.expected, "agrees": a.agrees} for a in attributes]


def _derived(one: Derived) -> dict[str, Any]:
    return {
        "rule": one.rule.name,
        "kind": one.rule.kind,
        "state": one.state,
        "about": one.said or None,
        "publishes": one.publishes,
        "agrees": one.agrees,
        "compared": list(one.compared),
        "drift": [drift.document() for drift in one.drifts],
        "attributes": _attributes(one.attributes),
        "guard": {"by": one.by or None, "at": _version(one.at), "n": one.shown_count} if one.guarded else None,
        "known": _version(one.known),
        "contributions": one.contributions,
        "sources": [{"key": key, "what": what} for key, what in one.sources],
        "more": one.more or None,
        "notes": list(one.notes),
        "problem": one.problem or None,
    }


def _source(one: Source) -> dict[str, Any]:
    entry = one.entry
    return {
        "agrees": one.agrees,
        "entry": {
            "version": _version(entry.version),
            "revision": entry.revision,
            "owes": sorted(entry.recent),
            "refused": dict(entry.refused),
            "underOtherRules": one.other_rules,
            "expires": one.expires,
        }
        if entry is not None
        else None,
        "contributions": [
            {
                "rule": c.rule,
                "target": c.target,
                "recorded": c.recorded,
                "should": c.should,
                "agrees": c.agrees,
                "excuse": c.excuse,
            }
            for c in one.contributions
        ],
        "copies": [
            {
                "rule": c.rule,
                "target": encode_key(c.target),
                "exists": c.there,
                "agrees": c.agrees,
                "by": c.by or None,
                "at": _version(c.at),
                "attributes": _attributes(c.attributes),
            }
            for c in one.copies
        ],
        "fences": [{"rule": rule, "version": _version(version)} for rule, version in one.fences],
        "problems": [{"rule": rule, "reason": reason} for rule, reason in one.problems],
    }


# On the terminal


def print_item(program: Program, report: ItemExplanation) -> None:
    """Print the derived values with their sources, then the contributions of the item."""
    out = console()
    if report.item is not None:
        variables = ", ".join(f"{name} {text}" for name, text in report.item.variables.items())
        of = styled("[cyan]{}[/]", report.item.entity.name) + (styled("  [dim]({})[/]", variables) if variables else "")
    else:
        of = (
            styled("[yellow]no entity[/]") if report.image is not None else styled("[yellow]the item does not exist[/]")
        )
    out.print(styled("[bold]{}[/]  {}", key_words(report.key), of))
    written = origins(program.typed)
    if report.other_rules:
        out.print(
            styled("[yellow]Other rules than these are active. Run `projections backfill` to activate these.[/]"),
        )
    for one in report.derived:
        _print_derived(out, one, written)
    if report.source is not None:
        _print_source(out, report.source)
    for left in report.left_over:
        out.print(styled("  [yellow]![/] [cyan]{}[/] {}", left.rule, difference(left)))
        out.print(styled("      [dim]{}. `verify --repair` {}.[/]", KINDS[left.kind], REPAIRS[left.kind]))
    for rule in report.missing_copy_of:
        out.print(styled("  [yellow]–[/] [cyan]{}[/]  [dim]copies of this rule have such keys[/]", rule))
        out.print(
            "      Whether a copy should be here depends on its source: explain that item, or run `projections verify`."
        )
        out.print()
    if not (report.derived or report.source or report.left_over or report.missing_copy_of):
        out.print(styled("   [dim]no rule reads or writes this item[/]"))
        out.print()
    versions = [version for one in report.derived for version in (one.at, one.known) if version]
    versions += [report.source.entry.version] if report.source is not None and report.source.entry is not None else []
    for note in _times(versions):
        out.print(styled("[dim]Note: {}.[/]", note))
    for line in _verdict(report):
        out.print(line)


def _verdict(report: ItemExplanation) -> Iterator[Styled]:
    """Yield the result of the comparison, and what was not compared."""
    grouped = any(one.contributions is not None and one.compared for one in report.derived)
    if report.drifts:
        found = count(len(report.drifts), "difference")
        yield styled("[red]✗[/] {}. Run this again before you act: a change may be pending.", found)
        for kind in dict.fromkeys(drift.kind for drift in report.drifts):
            yield styled("  [dim]{}: {}. `verify --repair` {}.[/]", kind, KINDS[kind], REPAIRS[kind])
    elif report.missing_copy_of:
        yield styled(
            "[yellow]–[/] Nothing shows that an item is missing here. Whether a copy is missing was not examined."
        )
    elif report.image is None and report.source is None:
        yield styled("[green]✓[/] Nothing shows that an item is missing here.")
    elif grouped:
        yield styled("[green]✓[/] The item and the ledger agree.")
    else:
        yield styled("[green]✓[/] No drift.")
    if grouped:
        yield styled("[dim]The groups were not compared with all source items. `projections verify` does that.[/]")


def _times(versions: list[str]) -> Iterator[str]:
    """Yield notes about the time of versions."""
    if any(group_version(version) for version in versions):
        yield GROUPS_HAVE_NO_TIME
    for label in sorted(
        {found["stream"] for version in versions if (found := stream_version(version)) and found["stream"]}
    ):
        yield f"{SEQUENCES_HAVE_NO_TIME}, {label}"


def _mark(agrees: bool, rejected: bool = False) -> Styled:
    if not agrees:
        return styled("[red]✗[/]")
    return styled("[yellow]![/]") if rejected else styled("[green]✓[/]")


def _print_derived(out: Console, one: Derived, written: Any) -> None:
    sources = " and ".join(source.name for source in one.rule.sources)
    target = getattr(one.rule, "into", one.rule.source).name
    hows = written.get(target, {})
    state = "" if one.state == LIVE else styled("  [yellow]{}[/]", one.state)
    mark = _mark(one.agrees, bool(one.problem)) if one.publishes else styled("[yellow]–[/]")
    out.print(
        styled("  {} [cyan]{}[/]  [dim]{} of {}[/]{}", mark, one.rule.name, one.rule.kind, sources, state),
    )
    if one.said:
        out.print(styled("      [dim]{}[/]", one.said))
    width = max((len(attribute.name) for attribute in one.attributes), default=0)
    for attribute in one.attributes:
        origin = hows.get(attribute.name, hows.get(EVERY))
        how = styled("  [dim]{}[/]", origin.how) if origin is not None and origin.rule == one.rule.name else ""
        out.print(styled("      {}  {}{}", attribute.name.ljust(width), _shown(attribute), how))
    for line in _origin(one):
        out.print(styled("      [dim]{}[/]", line))
    for drift in one.drifts:
        if drift.kind == "guard":
            out.print(styled("      [red]guard[/] {} {}", str(drift.attribute), difference(drift)))
    for note in one.notes:
        out.print(styled("      [yellow]{}[/]", note) if not one.agrees else styled("      [dim]{}[/]", note))
    if one.problem:
        out.print(styled("      [red]{}[/]", one.problem))
    out.print()


def _shown(attribute: Attribute) -> Styled:
    if attribute.agrees or attribute.drift is None:
        return styled("[bold]{}[/]", json_words(attribute.shown))
    drift = replace(attribute.drift, actual=attribute.shown, expected=attribute.expected)
    if attribute.drift.attribute is None:  # the drift of the whole item: this attribute of each side
        sides = {side: (value or {}).get(attribute.name) for side, value in drift.sides.items()}
        drift = replace(drift, sides=sides)
    return styled("[bold red]{}[/]", difference(drift))


def _origin(one: Derived) -> Iterator[str]:
    if one.contributions is not None:
        shown = ""
        if one.guarded:
            shown = ", which the item shows" if one.at == one.known else f", the item shows {version_words(one.at)}"
        yield f"the ledger has {count(one.contributions, 'contribution')} as of {version_words(one.known)}{shown}"
    elif one.guarded:
        newest = f", the newest is {version_words(one.known)}" if one.known and one.known != one.at else ""
        yield f"as of {version_words(one.at)}{newest}"
    if one.sources:
        named = [encoded_words(key) + (f" ({what})" if what else "") for key, what in one.sources]
        yield f"from {', '.join(named)}"
    if one.more:
        yield one.more


def _print_source(out: Console, one: Source) -> None:
    out.print(styled("  {} [bold]contributions of this item[/]", _mark(one.agrees, bool(one.problems))))
    entry = one.entry
    if entry is None and one.contributions:
        out.print(styled("      [dim]no ledger entry: no record of this item was processed[/]"))
    elif entry is not None:
        other = ", written under other rules" if one.other_rules else ""
        out.print(styled("      [dim]ledger entry: as of {}{}[/]", version_words(entry.version), other))
    if one.expires is not None:
        goes = datetime.fromtimestamp(one.expires, UTC).isoformat(timespec="minutes")
        out.print(styled("      [dim]the item was deleted, and the entry expires at {}[/]", goes))
    for given in one.contributions:
        words, wanted = difference_words(given.recorded, given.should)
        should = "" if given.agrees else styled(", should be [bold]{}[/]", wanted)
        if given.excuse:
            should = styled(" [dim]({})[/]", given.excuse)
        color = "bold" if given.agrees else "bold red"
        out.print(
            styled(
                "      {} [cyan]{}[/] to {}: [{}]{}[/]{}",
                _mark(given.agrees),
                given.rule,
                encoded_words(given.target),
                color,
                words,
                should,
            ),
        )
    for copied in one.copies:
        _print_copied(out, copied)
    for rule, version in one.fences:
        out.print(styled("      [cyan]{}[/] pushed to its children as of {}", rule, version_words(version)))
    if entry is not None and entry.recent:
        owed = ", ".join(encoded_words(element.partition("|")[2]) for element in sorted(entry.recent))
        out.print(styled("      [yellow]pending publishes: {}[/]", owed))
    for rule, reason in entry.refused.items() if entry is not None else ():
        out.print(styled("      [red]rejected by[/] [cyan]{}[/]: {}", rule, reason))
    for rule, reason in one.problems:
        out.print(styled("      [red]rejected by[/] [cyan]{}[/]: {}", rule, reason))
    out.print()


def _print_copied(out: Console, copied: Copied) -> None:
    name = key_words(copied.target)
    if not copied.there:
        out.print(styled("      {} [cyan]{}[/] its copy {} does not exist", _mark(False), copied.rule, name))
        return
    wrong = [a for a in copied.attributes if not a.agrees]
    at = styled(" [dim]as of {}[/]", version_words(copied.at))
    if not copied.drifts:
        out.print(styled("      {} [cyan]{}[/] its copy {} is correct{}", _mark(True), copied.rule, name, at))
        return
    out.print(styled("      {} [cyan]{}[/] its copy {} differs{}", _mark(False), copied.rule, name, at))
    for attribute in wrong:
        out.print(styled("          {}  {}", attribute.name, _shown(attribute)))
    for drift in copied.drifts:
        if drift.kind in ("guard", "occupied", "error"):
            out.print(styled("          {}  {}", drift.kind, difference(drift)))
