"""Candidates for drift: subjects with a difference, which are examined again after a pause. Late ones are dropped.

`observation` judges two observations. A candidate with the same difference in every observation is drift, even if its item
kept changing. Otherwise, if its item kept changing, it is busy: neither drift nor fine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from projections.engine.running import Run, one_by_one, slices
from projections.operations.verify.drift import DRIFT, FINE, LEFT_OVER, Drift, Finding, Observation, judge
from projections.operations.verify.examine import Examiner
from projections.operations.verify.scanning import Scratch
from projections.operations.verify.scope import Subject

DRIFTS, BUSY, LEFT = "drift", "busy", "left_over"

AT_ONCE = 100
"""Subjects examined together: as many as one request can read."""

_MOST_OBSERVATIONS = 4


class Candidates:
    """The candidates and the drift of one verification, in a scratch file.

    `patience` is the pause in seconds between observations: the maximum lag of a change.
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
            "CREATE TABLE candidate (subject TEXT PRIMARY KEY, state TEXT, known TEXT, image TEXT, steady INTEGER, "
            "push TEXT, drifts TEXT, stuck INTEGER)"
        )
        scratch.run("CREATE TABLE moving (push TEXT PRIMARY KEY)")
        for table in (DRIFTS, BUSY, LEFT):
            scratch.run(f"CREATE TABLE {table} (subject TEXT, rule TEXT, target TEXT, shadow INTEGER, drift TEXT)")
            scratch.run(f"CREATE INDEX {table}_at ON {table} (rule, target)")

    def add(self, texts: Iterable[str]) -> None:
        """Add candidates by their texts; duplicates are ignored."""
        for some in slices(texts, AT_ONCE):
            self._scratch.fill("INSERT OR IGNORE INTO candidate (subject) VALUES (?)", [(text,) for text in some])

    def examine(self, subjects: Sequence[Subject]) -> None:
        """Examine subjects now, and add those with differences."""
        found = self._examiner.examine(subjects)
        rows = [_row(one, finding, judge(None, finding)[1]) for one, finding in found.items() if finding.drifts]
        if rows:
            self._keep(rows)

    @property
    def waiting(self) -> int:
        """The number of candidates."""
        return int(self._scratch.one("SELECT count(*) FROM candidate"))

    def resolve(self) -> None:
        """Examine all candidates until each is fine, drift or busy."""
        new = self._scratch.one("SELECT count(*) FROM candidate WHERE state IS NULL")
        if new:
            self._examine_all()
        for _ in range(_MOST_OBSERVATIONS - 1):
            if not self.waiting:
                return
            self._sleep(self._patience)
            self._examine_all()
        for subject, drifts, steady in self._scratch.rows(
            "SELECT subject, drifts, steady AND push = '' FROM candidate"
        ):
            self.drift(subject, _drifts(drifts), DRIFTS if steady else BUSY)
        self._scratch.run("DELETE FROM candidate")

    def drift(self, subject: str, drifts: Iterable[Drift], table: str = DRIFTS) -> None:
        """Add drift, or busy subjects. Left over values have a table of their own."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for drift in drifts:
            row = subject, drift.rule, drift.target, int(drift.shadow), drift.text()
            rows.setdefault(LEFT if drift.kind == LEFT_OVER else table, []).append(row)
        for name, some in rows.items():
            self._scratch.fill(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", some)

    def about(self, rule: str, target: str, table: str = DRIFTS) -> Iterator[tuple[str, Drift]]:
        """Yield the drift of a group, its target and its entries, each with its kind of subject."""
        query = f"SELECT subject, drift FROM {table} WHERE rule = ? AND target = ?"
        for subject, drift in self._scratch.rows(query, (rule, target)):
            yield Subject.read(subject).kind, Drift.read(drift)

    def change(self, kind: str, changed: Callable[[Drift], Drift]) -> None:
        """Replace the drift of all subjects of a kind."""
        query = f"SELECT rowid, drift FROM {DRIFTS} WHERE subject LIKE ? AND rowid > ? ORDER BY rowid LIMIT ?"
        last = 0
        while rows := list(self._scratch.rows(query, (f'["{kind}",%', last, AT_ONCE))):
            last = rows[-1][0]
            new = [(changed(Drift.read(drift)).text(), row) for row, drift in rows]
            self._scratch.fill(f"UPDATE {DRIFTS} SET drift = ? WHERE rowid = ?", new)

    def drifts(self, table: str = DRIFTS) -> Iterator[Drift]:
        """Yield all rows of a table, rule by rule."""
        for (text,) in self._scratch.rows(f"SELECT drift FROM {table} ORDER BY rule, subject, rowid"):
            yield Drift.read(text)

    def subjects(self, table: str = DRIFTS) -> Iterator[Subject]:
        """Yield the subjects of all drift of rules that publish, each once."""
        for (text,) in self._scratch.rows(f"SELECT DISTINCT subject FROM {table} WHERE NOT shadow ORDER BY subject"):
            yield Subject.read(text)

    def count(self, table: str = DRIFTS, *, shadow: bool = False) -> int:
        """Return the number of differences, with `shadow` of those of rules in shadow mode."""
        return int(self._scratch.one(f"SELECT count(*) FROM {table}{' WHERE shadow' if shadow else ''}"))

    def replace(self, subject: Subject) -> None:
        """Forget the drift of a subject with other sources, and examine this one instead."""
        query = f"DELETE FROM {DRIFTS} WHERE rule = ? AND target = ? AND subject LIKE ?"
        self._scratch.run(query, (subject.rule, subject.key, f'["{subject.kind}",%'))
        self.add([subject.text()])

    def rules(self) -> set[str]:
        """Return the rules with drift or with busy subjects."""
        query = " UNION ".join(f"SELECT rule FROM {table}" for table in (DRIFTS, BUSY))
        return {name for (name,) in self._scratch.rows(query)}

    def forget(self, rule: str) -> None:
        """Remove the drift and the busy subjects of a rule, because it was compared with values that are not right."""
        for table in (DRIFTS, BUSY):
            self._scratch.run(f"DELETE FROM {table} WHERE rule = ?", (rule,))

    def reset(self) -> None:
        """Make all drift of rules that publish candidates again, because it was repaired."""
        for table in (DRIFTS, BUSY):
            self._scratch.run(
                f"INSERT OR IGNORE INTO candidate (subject) SELECT DISTINCT subject FROM {table} "
                "WHERE NOT shadow AND subject NOT LIKE '[\"group\",%'"
            )
            self._scratch.run(f"DELETE FROM {table} WHERE NOT shadow")

    # One observation
    def _examine_all(self) -> None:
        last = 0
        while True:
            columns = "rowid, subject, state, known, image, steady"
            query = f"SELECT {columns} FROM candidate WHERE rowid > ? ORDER BY rowid LIMIT ?"
            rows = list(self._scratch.rows(query, (last, 8 * AT_ONCE)))
            if not rows:
                break
            last = rows[-1][0]
            self._run([partial(self._batch, rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE)])
        self._give_up()

    def _batch(self, rows: Sequence[tuple[Any, ...]]) -> None:
        before = {Subject.read(text): None if look[0] is None else Observation(*look) for _, text, *look in rows}
        kept: list[tuple[Any, ...]] = []
        done: list[str] = []
        for subject, finding in self._examiner.examine(before).items():
            verdict, look = judge(before[subject], finding)
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
        """Remove candidates that are done. A push that one of them was waiting for makes progress."""
        marks = ", ".join("?" * len(texts))
        which = f"FROM candidate WHERE subject IN ({marks})"
        self._scratch.run(f"INSERT OR IGNORE INTO moving SELECT push {which} AND push <> ''", texts)
        self._scratch.run(f"DELETE {which}", texts)

    def _give_up(self) -> None:
        """Children that have not changed are drift, unless the push that they wait for makes progress."""
        still = "FROM candidate WHERE stuck AND push NOT IN (SELECT push FROM moving)"
        for subject, drifts in self._scratch.rows(f"SELECT subject, drifts {still}"):
            self.drift(subject, _drifts(drifts))
        self._scratch.run(f"DELETE {still}")
        self._scratch.run("DELETE FROM moving")

    def _keep(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._scratch.fill(
            "INSERT INTO candidate (subject, state, known, image, steady, push, drifts, stuck) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (subject) DO UPDATE SET state = excluded.state, "
            "known = excluded.known, image = excluded.image, steady = excluded.steady, push = excluded.push, "
            "drifts = excluded.drifts, stuck = excluded.stuck",
            rows,
        )


def _row(subject: Subject, finding: Finding, look: Observation, *, stuck: bool = False) -> tuple[Any, ...]:
    drifts = json.dumps([drift.text() for drift in finding.drifts])
    return subject.text(), look.state, look.known, look.image, int(look.steady), finding.push, drifts, int(stuck)


def _drifts(text: str) -> list[Drift]:
    return [Drift.read(drift) for drift in json.loads(text)]
