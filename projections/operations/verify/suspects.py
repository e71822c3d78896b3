"""Suspects: examined, and looked at again after a pause. What is merely late is dropped, what stays wrong is drift.

What two looks say is in `looks`. A suspect that was wrong in the same way at every look is drift, also if its item kept
changing; one that was not is busy, and nothing can be told of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from projections.engine.running import Run, one_by_one
from projections.operations.verify.drift import LEFT_OVER, Drift
from projections.operations.verify.examine import Examiner, Finding
from projections.operations.verify.looks import DRIFT, FINE, Look, told_apart
from projections.operations.verify.scratch import Scratch
from projections.operations.verify.subject import Subject

__all__ = ["AT_ONCE", "BUSY", "DRIFTS", "LEFT", "Suspects"]

DRIFTS, BUSY, LEFT = "drift", "busy", "left_over"

AT_ONCE = 100
"""Subjects examined together: what a request reads at most."""

_MOST_LOOKS = 4


class Suspects:
    """The suspects and the drift of one verification, in a scratch file.

    `patience` is the pause in seconds: how late a change may be, from the application's write to its last effect.
    """

    def __init__(
        self,
        examiner: Examiner,
        scratch: Scratch,
        *,
        patience: float,
        sleep: Callable[[float], None],
        run: Run[Any] = one_by_one,
    ) -> None:
        self._examiner = examiner
        self._scratch = scratch
        self._patience = patience
        self._sleep = sleep
        self._run = run
        scratch.run(
            "CREATE TABLE suspect (subject TEXT PRIMARY KEY, state TEXT, known TEXT, image TEXT, steady INTEGER, push TEXT, "
            "drifts TEXT, stuck INTEGER)"
        )
        scratch.run("CREATE TABLE moving (push TEXT PRIMARY KEY)")
        for table in (DRIFTS, BUSY, LEFT):
            scratch.run(f"CREATE TABLE {table} (subject TEXT, rule TEXT, target TEXT, shadow INTEGER, drift TEXT)")
            scratch.run(f"CREATE INDEX {table}_at ON {table} (rule, target)")

    def add(self, texts: Iterable[str]) -> None:
        """Suspects by their texts; the same one may come again."""
        iterator = iter(texts)
        while some := list(islice(iterator, AT_ONCE)):
            self._scratch.fill("INSERT OR IGNORE INTO suspect (subject) VALUES (?)", [(text,) for text in some])

    def look_at(self, subjects: Sequence[Subject]) -> None:
        """Examines subjects now, and keeps those with which something seems to be wrong."""
        found = self._examiner.examine(subjects)
        rows = [_row(one, finding, told_apart(None, finding)[1]) for one, finding in found.items() if finding.drifts]
        if rows:
            self._keep(rows)

    @property
    def waiting(self) -> int:
        """How many are to be looked at."""
        return int(self._scratch.one("SELECT count(*) FROM suspect"))

    def settle(self) -> None:
        """Looks at all suspects, until each is fine, drift or busy."""
        new = self._scratch.one("SELECT count(*) FROM suspect WHERE state IS NULL")
        if new:
            self._look()
        for _ in range(_MOST_LOOKS - 1):
            if not self.waiting:
                return
            self._sleep(self._patience)
            self._look()
        for subject, drifts, steady in self._scratch.rows("SELECT subject, drifts, steady AND push = '' FROM suspect"):
            self.drift(subject, _drifts(drifts), DRIFTS if steady else BUSY)
        self._scratch.run("DELETE FROM suspect")

    def drift(self, subject: str, drifts: Iterable[Drift], table: str = DRIFTS) -> None:
        """Keeps what was found to be drift, or too busy to tell. What is left over is kept apart."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for drift in drifts:
            row = subject, drift.rule, drift.target, int(drift.shadow), drift.text()
            rows.setdefault(LEFT if drift.kind == LEFT_OVER else table, []).append(row)
        for name, some in rows.items():
            self._scratch.fill(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", some)

    def about(self, rule: str, target: str, table: str = DRIFTS) -> Iterator[tuple[str, Drift]]:
        """The drift of one group: of its target, of itself and of its entries, each with its kind of subject."""
        query = f"SELECT subject, drift FROM {table} WHERE rule = ? AND target = ?"
        for subject, drift in self._scratch.rows(query, (rule, target)):
            yield Subject.read(subject).kind, Drift.read(drift)

    def change(self, kind: str, changed: Callable[[Drift], Drift]) -> None:
        """Replaces the drift of all subjects of a kind."""
        query = f"SELECT rowid, drift FROM {DRIFTS} WHERE subject LIKE ? AND rowid > ? ORDER BY rowid LIMIT ?"
        last = 0
        while rows := list(self._scratch.rows(query, (f'["{kind}",%', last, AT_ONCE))):
            last = rows[-1][0]
            new = [(changed(Drift.read(drift)).text(), row) for row, drift in rows]
            self._scratch.fill(f"UPDATE {DRIFTS} SET drift = ? WHERE rowid = ?", new)

    def drifts(self, table: str = DRIFTS) -> Iterator[Drift]:
        """All drift, or all that is busy, rule by rule."""
        for (text,) in self._scratch.rows(f"SELECT drift FROM {table} ORDER BY rule, subject, rowid"):
            yield Drift.read(text)

    def subjects(self, table: str = DRIFTS) -> Iterator[Subject]:
        """The subjects of all drift that rules are to answer for, each once."""
        for (text,) in self._scratch.rows(f"SELECT DISTINCT subject FROM {table} WHERE NOT shadow ORDER BY subject"):
            yield Subject.read(text)

    def count(self, table: str = DRIFTS) -> int:
        """How many differences there are."""
        return int(self._scratch.one(f"SELECT count(*) FROM {table}"))

    def replace(self, subject: Subject) -> None:
        """Forget the drift of a subject with other sources, and examine this one instead."""
        query = f"DELETE FROM {DRIFTS} WHERE rule = ? AND target = ? AND subject LIKE ?"
        self._scratch.run(query, (subject.rule, subject.key, f'["{subject.kind}",%'))
        self.add([subject.text()])

    def again(self) -> None:
        """Forgets the verdicts on items that rules answer for: they were repaired, and are suspects once more."""
        for table in (DRIFTS, BUSY):
            self._scratch.run(
                f"INSERT OR IGNORE INTO suspect (subject) SELECT DISTINCT subject FROM {table} "
                "WHERE NOT shadow AND subject NOT LIKE '[\"group\",%'"
            )
            self._scratch.run(f"DELETE FROM {table} WHERE NOT shadow")

    # One look

    def _look(self) -> None:
        last = 0
        while True:
            query = (
                "SELECT rowid, subject, state, known, image, steady FROM suspect WHERE rowid > ? ORDER BY rowid LIMIT ?"
            )
            rows = list(self._scratch.rows(query, (last, 8 * AT_ONCE)))
            if not rows:
                break
            last = rows[-1][0]
            self._run([partial(self._batch, rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE)])
        self._give_up()

    def _batch(self, rows: Sequence[tuple[Any, ...]]) -> None:
        before = {Subject.read(text): None if look[0] is None else Look(*look) for _, text, *look in rows}
        kept: list[tuple[Any, ...]] = []
        done: list[str] = []
        for subject, finding in self._examiner.examine(before).items():
            verdict, look = told_apart(before[subject], finding)
            if verdict == FINE:
                done.append(subject.text())
            elif verdict == DRIFT and not finding.push:
                self.drift(subject.text(), finding.drifts)
                done.append(subject.text())
            else:
                kept.append(_row(subject, finding, look, stuck=verdict == DRIFT))
        if done:
            self._drop(done)
        if kept:
            self._keep(kept)

    def _drop(self, texts: Sequence[str]) -> None:
        """Takes out suspects that are done. A push that one of them was waiting for moves on."""
        marks = ", ".join("?" * len(texts))
        which = f"FROM suspect WHERE subject IN ({marks})"
        self._scratch.run(f"INSERT OR IGNORE INTO moving SELECT push {which} AND push <> ''", texts)
        self._scratch.run(f"DELETE {which}", texts)

    def _give_up(self) -> None:
        """Children at which nothing has happened are drift, unless the push they wait for has reached others meanwhile."""
        still = "FROM suspect WHERE stuck AND push NOT IN (SELECT push FROM moving)"
        for subject, drifts in self._scratch.rows(f"SELECT subject, drifts {still}"):
            self.drift(subject, _drifts(drifts))
        self._scratch.run(f"DELETE {still}")
        self._scratch.run("DELETE FROM moving")

    def _keep(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._scratch.fill(
            "INSERT INTO suspect (subject, state, known, image, steady, push, drifts, stuck) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (subject) DO UPDATE SET state = excluded.state, "
            "known = excluded.known, image = excluded.image, steady = excluded.steady, push = excluded.push, "
            "drifts = excluded.drifts, stuck = excluded.stuck",
            rows,
        )


def _row(subject: Subject, finding: Finding, look: Look, *, stuck: bool = False) -> tuple[Any, ...]:
    drifts = json.dumps([drift.text() for drift in finding.drifts])
    return subject.text(), look.state, look.known, look.image, int(look.steady), finding.push, drifts, int(stuck)


def _drifts(text: str) -> list[Drift]:
    return [Drift.read(drift) for drift in json.loads(text)]
