"""`projections verify`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import Tables, as_json, select_option, selected_rules, stack_options
from projections.cli.stack import find_deployed
from projections.engine.ledger_items import LEDGER
from projections.errors import UsageError
from projections.inspect.explain.words import encoded_words, json_words, version_words, without_hashes
from projections.language.rules import public_name
from projections.local.items import distinct
from projections.operations.verify.drift import ENTRY, GROUP, ITEM, KINDS, LEFT_OVER, OFFLINE, REPAIRS, SOURCE, Drift
from projections.terminal import Bar, count, json_text, markup, print_grid, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.live_tables import Live
    from projections.language.program import Program
    from projections.operations.verify.repair import Repair
    from projections.operations.verify.verification import Verification


@click.command("verify")
@stack_options
@as_json
@select_option
@click.option("--sample", metavar="PERCENT", help="Read only this share of the tables, such as 1%.")
@click.option("--repair", is_flag=True, help="Repair the differences, and check them again.")
@click.option(
    "--allow-delete", is_flag=True, help="With --repair, delete copies and derived items that should not exist."
)
@click.option(
    "--patience",
    type=click.FloatRange(0, 3600),
    default=20.0,
    show_default=True,
    help="Seconds before a difference is checked again: a delayed change is not drift.",
)
@click.option(
    "--segments", type=click.IntRange(1, 100), default=4, show_default=True, help="Segments to scan in parallel."
)
def command(
    options: Tables,
    as_json: bool,
    select: tuple[str, ...],
    sample: str | None,
    repair: bool,
    allow_delete: bool,
    patience: float,
    segments: int,
) -> int:
    """Compare stored values with the rules; --repair corrects differences.

    The application may write meanwhile. Compares each source item with its entry in the ledger, the totals of each target
    (its group in the ledger) with the entries, published values with groups, and copies, index attributes and embedded
    attributes with their sources. Of versions of rules that are not published, compares what the ledger records, so that a
    version is known to be right before it is promoted; and the values on items if the rule has no published version. If
    nothing is deployed yet, compares the tables with the values that the rules would write: this checks values that the
    application maintains itself. A rule that reads what another rule writes is compared only if the values of that rule are
    right.

    For each difference, prints the values of the item, of its group and of the entries, and which of them disagree with the
    source items. With --sample, the command can only report that an item and its group differ, and --repair is refused.

    With --repair, refreshes wrong items, and recounts rules of which a group disagrees with its entries: each gets a new
    version of the same meaning, which is filled and published. Damaged versions that are not published are removed.

    Groups of rules with `ledger: lanes` are compared with the items, those that kept changing are not decided. A version
    with a gap may have missed changes: --repair counts it again, too.

    Exits with 1 if there is drift or a gap; with --repair, if any is left.

    \b
    Examples:
      projections verify --stack shop --sample 1%
      projections verify --stack shop --repair
    """
    from projections.operations.verify.repair import verify_and_repair

    share = _share(sample)
    if allow_delete and not repair:
        raise UsageError("--allow-delete has no effect without --repair. Add --repair, or omit it")
    there = find_deployed(options)
    live = there.connect(there.document(writes=repair), threads=4 * segments, without_ledger=True)
    for text in there.warnings(live) if "ledger" in live.names else ():  # nothing is deployed without one
        print_line(f"warning: {text}.", err=True)
    progress = Progress(live, quiet=as_json)
    with (
        progress.bar,
        verify_and_repair(
            live.program,
            live.store,
            ledger="ledger" in live.names,
            only=selected_rules(live.program, select),
            sample=share,
            repair=repair,
            allow_delete=allow_delete,
            patience=patience,
            segments=segments,
            report=progress.reading,
        ) as done,
    ):
        progress.bar.end()
        checked, repaired = done.verification, done.repair
        if as_json:
            print_report(checked, repaired, done.withheld, share)
        else:
            print_table(checked, repaired, done.withheld, share, done.differences, live.program)
        left = checked.candidates.count()
        return int(
            bool(left or checked.scope.gaps or (repaired is not None and (repaired.failed or repaired.rejected)))
        )


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text}: expected a percentage above 0 and up to 100, such as 1%")
    return share


MOST = 20
"""Differences of a rule that are printed."""


class Progress:
    """Shows the progress of a verification."""

    def __init__(self, live: Live, *, quiet: bool) -> None:
        self._sizes = live.sizes
        self._read: Counter[str] = Counter()
        self.bar = Bar("", quiet=quiet)

    def reading(self, what: str, items: int) -> None:
        """A page of the table `what` was read; without items, `what` is the next step."""
        self._read[what] += items
        self.bar.step(f"reading {what}" if items else what, self._read[what], self._sizes.get(what, 0))


def print_report(checked: Verification, repair: Repair | None, withheld: Sequence[str], share: float | None) -> None:
    """Print one object piece by piece, because there may be more drift than fits into memory."""
    for name, drifts in (("drift", checked.drifts()), ("busy", checked.busy()), ("leftOver", checked.left_over())):
        print_text(("{" if name == "drift" else "") + f'"{name}": [\n')
        before = ""
        for drift in drifts:
            print_text(before + json.dumps(drift.document(), ensure_ascii=False, sort_keys=True), end="")
            before = ",\n"
        print_text("\n],\n")
    summary = {
        "rules": {
            **{checked.scope.shown_name(name): state for name, state in checked.scope.states.items()},
            **dict.fromkeys(checked.scope.stale, "stale"),
        },
        "read": dict(checked.counts),
        "sample": share,
        "ledger": not checked.scope.offline,
        "comparedSources": checked.compares_sources,
        "takenAsGiven": checked.scope.keeping,
        "notCompared": checked.uncompared,
        "comparedWithItems": {
            rule: {"groups": number, "changing": changing} for rule, (number, changing) in checked.by_lanes().items()
        },
        "gaps": {checked.scope.shown_name(name): gap for name, gap in checked.scope.gaps.items()},
        "repaired": dict(repair.counts) if repair is not None else None,
        "recounted": repair.recounted if repair is not None else [],
        "removed": repair.removed if repair is not None else [],
        "failed": repair.failed if repair is not None else {},
        "rejected": repair.rejected if repair is not None else {},
        "withheld": withheld,
    }
    print_text(json_text(summary)[1:])


def print_table(
    checked: Verification,
    repair: Repair | None,
    withheld: Sequence[str],
    share: float | None,
    found_count: int,
    program: Program,
) -> None:
    """Print the first differences of each rule, with what `program` says about it; a summary by kind, and notes."""
    from projections.language.ruleset import readers

    kinds: Counter[tuple[str, str]] = Counter()
    others: Counter[str] = Counter()
    several = len(checked.scope.program.tables) > 1
    for rule, drifts in groupby(checked.drifts(), key=lambda drift: drift.rule):
        rows: list[list[tuple[str, str]]] = []
        hidden = 0
        for drift in drifts:
            kinds[drift.kind, drift.repair] += 1
            if drift.ledger:
                others[drift.ledger] += 1
            if len(rows) < MOST:
                rows.append(_row(drift, several, checked.scope.offline))
            else:
                hidden += 1
        state = "not deployed" if checked.scope.offline else checked.scope.states.get(rule, "active")
        about = "; ".join(filter(None, (state, program.about(public_name(rule)))))
        print_line(markup("[bold cyan]{}[/] [dim]({})[/]", rule, about) if rule else markup("[bold cyan]all rules[/]"))
        if hidden:
            rows.append([("…", ""), (f"and {hidden:,} more; --json has all", "dim")])
        print_grid(rows)
    for (kind, repairs), number in kinds.most_common():
        about = f"{OFFLINE[kind]}." if checked.scope.offline else f"{KINDS[kind]}. --repair {repairs}."
        print_line(f"{number:>7,} × {kind}: {about}")
    for ledger, number in sorted(others.items()):
        print_line(
            f"{count(number, 'difference')} on items that another ledger, {ledger}, maintains, or did. If that stack still "
            "exists, delete one of the two before you repair: `projections status` names it."
        )
    busy = "Not decided, because the values kept changing during the check"
    busy += ":" if checked.scope.offline else " (--repair refreshes them, which is safe):"
    left_over = f"Not counted as drift: {KINDS[LEFT_OVER]}. --repair {REPAIRS[LEFT_OVER]}."
    for line in [
        *_notes(checked, repair, share),
        *_first(checked, checked.busy(), busy),
        *_first(checked, checked.left_over(), left_over, values=True),
    ]:
        print_line(line)
    if withheld:
        keys = ", ".join(_key(text, several) for text in withheld)
        print_line(f"Not deleted without --allow-delete: {keys}.")
    counts = sorted(checked.counts.items(), key=lambda pair: (pair[0] == LEDGER, pair[0]))
    read = ", ".join(f"{number:,} of {'the ledger' if table == LEDGER else table}" for table, number in counts)
    left = checked.candidates.count()
    if repair is not None:
        unpublished = checked.candidates.count(unpublished=True)
        of_these = f", {unpublished:,} of them of versions that are not published" if unpublished else ""
        text = f"{count(found_count, 'difference')} found, {left:,} left{of_these}."
    elif left:
        text = f"{count(left, 'difference')}."
    elif checked.scope.gaps:
        text = "No drift, but a gap."
    else:
        text = "✓ No drift."
    print_line(f"{text} Items read: {read or 'none'}.")
    if repair is not None and readers(checked.scope.program.model, repair.rules):
        print_line("Values that follow from repaired ones are repaired next: run the same command again.")


def _row(drift: Drift, several: bool, offline: bool) -> list[tuple[str, str]]:
    behind = [f"source {_key(drift.source, several)}"] if drift.source else []
    behind += [f"as of {version_words(drift.at)}"] if drift.at and not offline else []
    return [
        (drift.kind, "yellow" if drift.unpublished else "red"),
        (_key(drift.target, several), ""),
        (drift.attribute or "", "bold"),
        (difference(drift), ""),
        ("; ".join(behind), "dim"),
    ]


def difference(drift: Drift) -> str:
    """Return a drift in one line: the value of each side, the expected value if it is known, and which sides are wrong."""
    if not drift.ledger:
        return _difference(drift)
    other = f"maintained by another ledger, {drift.ledger}"
    return other if drift.kind == "guard" else f"{_difference(drift)} ({other})"


def _difference(drift: Drift) -> str:
    if drift.kind == "error":
        return f"{drift.actual}. Correct the item, or report this"
    if drift.kind == LEFT_OVER:
        return f"left over: {json_words(drift.actual)}"
    if drift.kind == "occupied":
        return f"an item of another kind is there: {json_words(drift.actual)}"
    if drift.kind == "copy extra" and drift.wrong is None:
        return "no item has such a copy by its guard; other source items were not compared"
    if drift.kind == "link":
        return "is absent"
    sides = {side: value for side, value in drift.sides.items() if side != SOURCE}
    first = next(iter(sides))
    words = _guard if drift.kind == "guard" else json_words
    if drift.wrong == (first,) and (SOURCE in drift.sides or GROUP not in drift.sides):
        expected = drift.sides.get(SOURCE, drift.expected)
        if first == ENTRY:
            return _contributions(drift.actual, expected)
        actual, wanted = _apart([drift.actual, expected], words)
        return f"is {actual}, should be {wanted}"
    *shown, wanted = _apart([*sides.values(), drift.expected], words)
    text = ", ".join(f"{_SIDES[side]}: {value}" for side, value in zip(sides, shown, strict=True))
    if drift.wrong is None:
        return f"{text}; source items not compared"
    should = f", should be {wanted}" if SOURCE in drift.sides else ""
    are = "is" if len(drift.wrong) == 1 else "are"
    return f"{text}{should} ({' and '.join(drift.wrong)} {are} wrong)"


def _contributions(actual: Any, expected: Any) -> str:
    """Return what the ledger has and should have for an item: of both only the parts that differ, and no hashes."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        names = [name for name in {**actual, **expected} if actual.get(name) != expected.get(name)]
        actual, expected = ({name: side[name] for name in names if name in side} for side in (actual, expected))
    shown = [without_hashes(side) for side in (actual, expected)]
    if shown[0] == shown[1]:
        return f"the attributes that the ledger keeps differ from the source item's: {json_words(shown[0])}"
    actual, expected = _apart(shown, json_words)
    return f"is {actual}, should be {expected}"


def _apart(values: Sequence[Any], words: Callable[[Any], str]) -> list[str]:
    """Return values in words; where different values would read the same, the parts of their JSON that differ."""
    whole = ["absent" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True) for value in values]
    return distinct([words(value) for value in values], whole)


def _guard(value: Any) -> str:
    """Return the field of a guard or of a group that was compared."""
    if not isinstance(value, dict):
        return value or "absent"
    ((field, held),) = value.items()
    if field == "n":
        return f"of {count(held or 0, 'contribution')}"
    if field == "by":
        return f"of source {encoded_words(held)}" if held else "of no source"
    return f"at {version_words(held)}"


_SIDES = {ITEM: "item", GROUP: "group", ENTRY: "entries"}


def _key(text: str, several: bool) -> str:
    """Return an encoded key as people read it, with its table if there are several."""
    return (f"{text.partition('|')[0]}: " if several and "|" in text else "") + encoded_words(text)


def _first(checked: Verification, drifts: Iterator[Drift], title: str, *, values: bool = False) -> Iterator[str]:
    """Yield a title and the first few of some drifts; nothing if there are none."""
    several = len(checked.scope.program.tables) > 1
    for number, drift in enumerate(islice(drifts, MOST + 1)):
        if number == 0:
            yield title
        if number == MOST:
            yield "  …"
        else:
            value = f"  {json_words(drift.actual)}" if values else ""
            yield f"  {drift.rule}  {_key(drift.target, several)}{value}"


def _notes(checked: Verification, repair: Repair | None, share: float | None) -> Iterator[str]:
    scope = checked.scope
    if scope.offline:
        why = "The rules are not deployed, or --ledger is missing"
        if checked.guarded:
            why = (
                "No ledger was named, or another one: pass --ledger or --stack. "
                "Items have guards, which only functions with a ledger write. Without it"
            )
        yield f"{why}{',' if checked.guarded else ':'} the tables were compared with the values that the rules would write."
    for name, causes in checked.uncompared.items():
        yield (
            f"{name} was not compared: it reads what {' and '.join(causes)} would write, and these values are not in the "
            "tables, or differ. Run this again after a backfill, or when they are right."
        )
    for name in scope.stale:
        yield f"{name} was not compared: it is stale, because this package, or that of a function, is too old to read it."
    for name in scope.filling:
        yield f"{name} is filling: only its groups were compared with its entries."
    for name, state in scope.states.items():
        if state in ("ready", "standby") and name not in scope.published and not scope.offline:
            yield f"{name} is not published ({state}): what it records was compared, and no values of items."
    for name, (number, changing) in checked.by_lanes().items() if share is None else ():
        moved = f"; {changing:,} of them kept changing, and were not decided" if changing else ""
        yield f"{name} has no entries (ledger: lanes): {count(number, 'group')} compared with the items{moved}."
    for name in sorted(scope.by_lanes - scope.lanes):
        why = "it is filling" if scope.states[name] == "filling" else "no item shows what has expired (expired: keep)"
        yield f"{scope.shown_name(name)} has no entries (ledger: lanes), and its groups were not compared: {why}."
    for name, gap in scope.gaps.items():
        yield f"{scope.shown_name(name)} has a gap: {gap}. Its groups may be wrong. --repair counts it again."
    if scope.keeping and share is None:
        names = ", ".join(scope.keeping)
        yield f"Contributions of expired items (expired: keep) cannot be checked, and are assumed to be correct: {names}."
    if share is not None and scope.offline and scope.published:
        yield f"A sample shows no totals without a ledger, so these were not compared: {', '.join(sorted(scope.published))}."
    elif share is not None and (scope.grouped or scope.by_lanes):
        yield (
            "Items were compared with their groups in the ledger, but groups were not compared with all source items: where "
            "an item and its group differ, either may be wrong."
        )
    if repair is not None:
        if repair.recounted:
            yield f"Recounted from all items, as a new version that is published: {', '.join(repair.recounted)}."
        if repair.removed:
            yield f"Removed, because groups were damaged: {', '.join(repair.removed)}. Apply the rules again to fill them."
        for why, reasons in (("not repaired", repair.failed), ("cannot be stored", repair.rejected)):
            for key, reason in reasons.items():
                yield f"{why}: {key}: {reason}"
