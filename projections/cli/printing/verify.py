"""What `verify` prints: differences rule by rule for people, all of them for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from projections.language.keys import decode_key
from projections.operations.verify.drift import ENTRY, GROUP, ITEM, KINDS, LEFT_OVER, REPAIRS, SOURCE, Drift
from projections.terminal import console, json_text, print_grid, print_line, print_text, styled

if TYPE_CHECKING:
    from projections.aws.connection import Live
    from projections.operations.verify.repair import Repair
    from projections.operations.verify.verification import Verification

__all__ = ["Progress", "difference", "print_json", "print_table"]

_LONGEST = 70


class Progress:
    """How far it is, on standard error: a line that moves on a terminal, a line for each step elsewhere."""

    def __init__(self, live: Live, *, quiet: bool) -> None:
        self._sizes = live.sizes
        self._quiet = quiet
        self._said: set[str] = set()
        self._read: Counter[str] = Counter()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        out = console(stderr=True)
        if out.is_terminal and not self._quiet:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Bar(*columns, console=out, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def told(self, what: str, items: int) -> None:
        """A page of a table was read, or, without items, something else begins."""
        self._read[what] += items
        text = f"reading: {', '.join(f'{self._of(table)} of {table}' for table in self._read if self._read[table])}"
        if not items:
            text = f"{what} …"
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        elif not self._quiet and what not in self._said:
            self._said.add(what)
            print_line(f"reading {what} …" if items else text, err=True)

    def _of(self, table: str) -> str:
        size = self._sizes.get(table, 0)
        return f"{self._read[table]:,}" + (f" (of about {size:,})" if size >= self._read[table] > 0 else "")

    def end(self) -> None:
        """Nothing moves any more."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def print_json(one: Verification, mended: Repair | None, withheld: Sequence[str], share: float | None) -> None:
    """One object, written as it comes: there may be more drift than fits into memory."""
    for name, drifts in (("drift", one.drifts()), ("busy", one.busy()), ("leftOver", one.left_over())):
        print_text(("{" if name == "drift" else "") + f'"{name}": [\n')
        before = ""
        for drift in drifts:
            print_text(before + json.dumps(drift.document(), ensure_ascii=False, sort_keys=True), end="")
            before = ",\n"
        print_text("\n],\n")
    rest = {
        "rules": one.scope.states,
        "read": dict(one.counts),
        "sample": share,
        "ledger": not one.scope.offline,
        "comparedSources": one.compares_sources,
        "takenAsGiven": one.scope.keeping,
        "repaired": dict(mended.counts) if mended is not None else None,
        "failed": mended.failed if mended is not None else {},
        "rejected": mended.rejected if mended is not None else {},
        "withheld": withheld,
    }
    print_text(json_text(rest)[1:])


def print_table(
    one: Verification, mended: Repair | None, withheld: Sequence[str], share: float | None, found: int, most: int
) -> None:
    """Differences rule by rule, as many of each as asked for; then what else there is to know."""
    out = console()
    kinds: Counter[str] = Counter()
    several = len(one.scope.program.tables) > 1
    for rule, drifts in groupby(one.drifts(), key=lambda drift: drift.rule):
        rows: list[list[tuple[str, str]]] = []
        more = 0
        for drift in drifts:
            kinds[drift.kind] += 1
            if len(rows) < most:
                rows.append(_row(drift, several))
            else:
                more += 1
        state = "not deployed" if one.scope.offline else one.scope.states.get(rule, "gone")
        out.print(
            styled("[bold cyan]{}[/] [dim]({})[/]", rule, state) if rule else styled("[bold cyan]all rules[/]"),
            soft_wrap=True,
        )
        if more:
            rows.append([("…", ""), (f"and {more:,} more: --show, or --json for all", "dim")])
        print_grid(out, rows)
    for kind, count in kinds.most_common():
        print_line(f"{count:>7,} × {kind}: {KINDS[kind]}. --repair {REPAIRS[kind]}.")
    for line in [*_notes(one, mended, share), *_busy(one), *_left_over(one)]:
        print_line(line)
    if withheld:
        shown = ", ".join(_key(text, several) for text in withheld)
        print_line(f"Not deleted without --allow-delete: {shown}.")
    read = ", ".join(f"{count:,} of {table}" for table, count in sorted(one.counts.items()))
    left = one.suspects.count()
    if mended is not None:
        said = f"{found:,} {'was' if found == 1 else 'were'} wrong, {left:,} {'is' if left == 1 else 'are'} left."
    elif left:
        said = f"{left:,} {'difference' if left == 1 else 'differences'}."
    else:
        said = "✓ No drift."
    print_line(f"{said} Items read: {read or 'none'}.")


def _row(drift: Drift, several: bool) -> list[tuple[str, str]]:
    behind = [f"source {_key(drift.source, several)}"] if drift.source else []
    behind += [f"written at {drift.at}"] if drift.at else []
    return [
        (drift.kind, "yellow" if drift.shadow else "red"),
        (_key(drift.target, several), ""),
        (drift.attribute or "", "bold"),
        (difference(drift), ""),
        ("; ".join(behind), "dim"),
    ]


def difference(drift: Drift) -> str:
    """What is wrong in one line: the value of each side, what it should be if that is known, and which sides are wrong."""
    if drift.kind == "rebuilding":
        return "nothing is published until it is ended: --repair"
    if drift.kind == "error":
        return f"{drift.actual}; correct the item, or report this"
    if drift.kind == LEFT_OVER:
        return f"left over: {_value(drift.actual)}"
    if drift.kind == "occupied":
        return f"an item of another kind is there: {_value(drift.actual)}"
    if drift.kind == "copy extra" and drift.wrong is None:
        return "its guard names no item that it is a copy of; other source items not compared"
    sides = {side: value for side, value in drift.sides.items() if side != SOURCE}
    first = next(iter(sides))
    if drift.wrong == (first,) and (SOURCE in drift.sides or GROUP not in drift.sides):
        return f"is {_value(drift.actual)}, should be {_value(drift.sides.get(SOURCE, drift.expected))}"
    said = ", ".join(f"{_SIDES[side]}: {_value(value)}" for side, value in sides.items())
    if drift.wrong is None:
        return f"{said}; source items not compared"
    should = f", should be {_value(drift.expected)}" if SOURCE in drift.sides else ""
    are = "is" if len(drift.wrong) == 1 else "are"
    return f"{said}{should} ({' and '.join(drift.wrong)} {are} wrong)"


_SIDES = {ITEM: "item", GROUP: "group", ENTRY: "entries"}


def _key(text: str, several: bool) -> str:
    try:
        table, *parts = decode_key(text)
    except ValueError:
        return text
    return (f"{table}: " if several else "") + " · ".join(part for part in parts if part is not None)


def _value(value: Any) -> str:
    if value is None:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _busy(one: Verification, most: int = 10) -> Iterator[str]:
    drifts = list(_first(one.busy(), most + 1))
    if not drifts:
        return
    yield "Could not be told, because it kept changing (--repair puts it right safely, right or not):"
    for drift in drifts[:most]:
        yield f"  {drift.rule}  {_key(drift.target, len(one.scope.program.tables) > 1)}"
    if len(drifts) > most:
        yield "  …"


def _left_over(one: Verification, most: int = 10) -> Iterator[str]:
    drifts = list(_first(one.left_over(), most + 1))
    if not drifts:
        return
    yield f"Not counted as drift: {KINDS[LEFT_OVER]}. --repair {REPAIRS[LEFT_OVER]}."
    for drift in drifts[:most]:
        yield f"  {drift.rule}  {_key(drift.target, len(one.scope.program.tables) > 1)}  {_value(drift.actual)}"
    if len(drifts) > most:
        yield "  …"


def _first(drifts: Iterator[Drift], most: int) -> Iterator[Drift]:
    for _, drift in zip(range(most), drifts, strict=False):
        yield drift


def _notes(one: Verification, mended: Repair | None, share: float | None) -> Iterator[str]:
    scope = one.scope
    if scope.offline:
        yield "There is no ledger yet: the tables were compared with what the rules would make of them."
    for name in scope.filling:
        yield f"{name} is filling: it publishes nothing until its backfill is complete, so only its sums were compared."
    shadows = [name for name, state in scope.states.items() if state == "shadow" and not scope.offline]
    if shadows:
        yield f"In the shadow, compared with what is there: {', '.join(shadows)}."
    if scope.keeping and share is None:
        yield f"What has settled (expired: keep) is taken as given, no item tells it any more: {', '.join(scope.keeping)}."
    if share is not None and scope.grouped:
        yield (
            "Items were compared with their groups in the ledger, but groups not with all source items: where an item and "
            "its group differ, either may be wrong. --repair first compares these groups with all entries."
        )
    if mended is not None:
        for why, reasons in (("not repaired", mended.failed), ("cannot be stored", mended.rejected)):
            for key, reason in reasons.items():
                yield f"{why}: {key}: {reason}"
