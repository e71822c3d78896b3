"""Candidates for drift: subjects that are examined, and again after a pause if they differ. Late ones are dropped.

`observation` judges two observations. A candidate with the same difference in every observation is drift, even if its item
kept changing. Otherwise, if its item kept changing, it is busy: neither drift nor fine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from projections.engine.running import Run, one_by_one, slices
from projections.operations.verify.drift import DRIFT, ENTRY, FINE, LEFT_OVER, Drift, Finding, Observation, judge
from projections.operations.verify.examine import Examiner
from projections.operations.verify.scanning import Scratch
from projections.operations.verify.verify_scope import GROUP, Subject

DRIFTS, BUSY, LEFT, EXPLAINED = "drift", "busy", "left_over", "explained"
"""Tables of differences. Of a group that is right, those that the drift of its entries explains are not reported."""

AT_ONCE = 100
"""Subjects examined together: as many as one request can read."""

_MOST_OBSERVATIONS = 4


@dataclass(eq=False)
class Candidates:
    """The candidates and the drift of one verification, in a scratch file.

    `patience` is the pause in seconds between observations: the maximum lag of a change.
    """

    examiner: Examiner
    scratch: Scratch
    _: KW_ONLY
    patience: float
    sleep: Callable[[float], None]
    run: Run[Any] = one_by_one

    def __post_init__(self) -> None:
        self.scratch.run(
            "CREATE TABLE candidate (subject TEXT PRIMARY KEY, sources TEXT, state TEXT, known TEXT, image TEXT, "
            "steady INTEGER, push TEXT, drifts TEXT, stuck INTEGER)"
        )
        self.scratch.run("CREATE TABLE moving (push TEXT PRIMARY KEY)")
        for table in (DRIFTS, BUSY, LEFT, EXPLAINED):
            columns = "subject TEXT, rule TEXT, target TEXT, unpublished INTEGER, drift TEXT"
            self.scratch.run(f"CREATE TABLE {table} ({columns})")
            self.scratch.run(f"CREATE INDEX {table}_at ON {table} (rule, target)")

    def add(self, subjects: Iterable[Subject]) -> None:
        """Add candidates. One that is there already gets the sources of the other, too."""
        rows = [(subject._replace(sources=()).text(), _sources(subject)) for subject in subjects]
        self.scratch.fill(
            "INSERT INTO candidate (subject, sources) VALUES (?, ?) ON CONFLICT (subject) DO UPDATE SET "
            "sources = sources || ',' || excluded.sources WHERE excluded.sources <> 'null'",
            rows,
        )

    def differing(self, examiner: Examiner) -> Iterator[Finding]:
        """Remove the candidates without a difference to this examiner, and yield what it finds of the others."""
        for rows in self._batches("subject, sources", AT_ONCE):
            findings = examiner.examine(_subject(*row) for row in rows)
            self._remove([subject for subject, finding in findings.items() if not finding.drifts])
            yield from (finding for finding in findings.values() if finding.drifts)

    def examine(self, subjects: Sequence[Subject]) -> None:
        """Examine subjects now, and add those with differences."""
        findings = self.examiner.examine(subjects)
        rows = [_row(name, finding, judge(None, finding)[1]) for name, finding in findings.items() if finding.drifts]
        if rows:
            self._keep(rows)

    def resolve(self) -> None:
        """Examine all candidates until each is fine, drift or busy."""
        if self.scratch.one("SELECT count(*) FROM candidate WHERE state IS NULL"):
            self._examine_all()
        for _ in range(_MOST_OBSERVATIONS - 1):
            if not self.scratch.one("SELECT count(*) FROM candidate"):
                return
            self.sleep(self.patience)
            self._examine_all()
        for subject, sources, drifts, steady in self.scratch.rows(
            "SELECT subject, sources, drifts, steady AND push = '' FROM candidate"
        ):
            self.drift(_subject(subject, sources), _drifts(drifts), DRIFTS if steady else BUSY)
        self.scratch.run("DELETE FROM candidate")

    def drift(self, subject: Subject, drifts: Iterable[Drift], table: str = DRIFTS) -> None:
        """Add drift, or busy subjects. Left over values have a table of their own, and explained differences."""
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for drift in drifts:
            row = subject.text(), drift.rule, drift.target, int(drift.unpublished), drift.text()
            explained = subject.kind == GROUP and drift.wrong == (ENTRY,)
            rows.setdefault(LEFT if drift.kind == LEFT_OVER else EXPLAINED if explained else table, []).append(row)
        for name, table_rows in rows.items():
            self.scratch.fill(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", table_rows)

    def about(self, rule: str, target: str, table: str = DRIFTS) -> Iterator[tuple[str, Drift]]:
        """Yield the drift of a group, its target and its entries, each with its kind of subject."""
        query = f"SELECT subject, drift FROM {table} WHERE rule = ? AND target = ?"
        for subject, drift in self.scratch.rows(query, (rule, target)):
            yield Subject.read(subject).kind, Drift.read(drift)

    def change(self, kind: str, changed: Callable[[Drift], Drift]) -> None:
        """Replace the drift of all subjects of a kind."""
        query = f"SELECT rowid, drift FROM {DRIFTS} WHERE subject LIKE ? AND rowid > ? ORDER BY rowid LIMIT ?"
        last = 0
        while rows := list(self.scratch.rows(query, (f'["{kind}",%', last, AT_ONCE))):
            last = rows[-1][0]
            new = [(changed(Drift.read(drift)).text(), row) for row, drift in rows]
            self.scratch.fill(f"UPDATE {DRIFTS} SET drift = ? WHERE rowid = ?", new)

    def drifts(self, table: str = DRIFTS) -> Iterator[Drift]:
        """Yield all rows of a table, rule by rule."""
        for (text,) in self.scratch.rows(f"SELECT drift FROM {table} ORDER BY rule, subject, rowid"):
            yield Drift.read(text)

    def subjects(self, table: str = DRIFTS) -> Iterator[Subject]:
        """Yield the subjects of all drift of rules that publish, each once."""
        query = f"SELECT DISTINCT subject FROM {table} WHERE NOT unpublished ORDER BY subject"
        for (text,) in self.scratch.rows(query):
            yield Subject.read(text)

    def count(self, table: str = DRIFTS, *, unpublished: bool = False) -> int:
        """Return the number of differences, with `unpublished` of those of versions that are not published."""
        return int(self.scratch.one(f"SELECT count(*) FROM {table}{' WHERE unpublished' if unpublished else ''}"))

    def rules(self) -> set[str]:
        """Return the rules with drift or with busy subjects."""
        query = " UNION ".join(f"SELECT rule FROM {table}" for table in (DRIFTS, BUSY))
        return {name for (name,) in self.scratch.rows(query)}

    def forget(self, rule: str) -> None:
        """Remove the drift and the busy subjects of a rule, because it was compared with values that are not right."""
        for table in (DRIFTS, BUSY):
            self.scratch.run(f"DELETE FROM {table} WHERE rule = ?", (rule,))

    def reset(self) -> None:
        """Make all drift of rules that publish candidates again, because it was repaired."""
        for table in (DRIFTS, BUSY):
            for subjects in slices((subject for subject in self.subjects(table) if subject.kind != GROUP), AT_ONCE):
                self.add(subjects)
            self.scratch.run(f"DELETE FROM {table} WHERE NOT unpublished")
        self.scratch.run(f"DELETE FROM {EXPLAINED}")

    # One observation

    def _batches(self, columns: str, size: int) -> Iterator[list[tuple[Any, ...]]]:
        """Yield all candidates, in the order in which they were added. They may be changed and removed meanwhile."""
        last = 0
        query = f"SELECT rowid, {columns} FROM candidate WHERE rowid > ? ORDER BY rowid LIMIT ?"
        while rows := list(self.scratch.rows(query, (last, size))):
            last = rows[-1][0]
            yield [row[1:] for row in rows]

    def _examine_all(self) -> None:
        for rows in self._batches("subject, sources, state, known, image, steady", 8 * AT_ONCE):
            self.run([partial(self._batch, batch) for batch in slices(rows, AT_ONCE)])
        self._give_up()

    def _batch(self, rows: Sequence[tuple[Any, ...]]) -> None:
        before = {
            _subject(text, sources): None if look[0] is None else Observation(*look) for text, sources, *look in rows
        }
        kept: list[tuple[Any, ...]] = []
        done: list[Subject] = []
        for subject, finding in self.examiner.examine(before).items():
            verdict, look = judge(before[subject], finding)
            if verdict == FINE:
                done.append(subject)
            elif verdict == DRIFT and not finding.push:
                self.drift(subject, finding.drifts)
                done.append(subject)
            else:
                kept.append(_row(subject, finding, look, stuck=verdict == DRIFT))
        self._remove(done)
        if kept:
            self._keep(kept)

    def _remove(self, subjects: Sequence[Subject]) -> None:
        """Remove candidates that are done. A push that one of them was waiting for makes progress."""
        texts = [subject._replace(sources=()).text() for subject in subjects]
        which = f"FROM candidate WHERE subject IN ({', '.join('?' * len(texts))})"
        self.scratch.run(f"INSERT OR IGNORE INTO moving SELECT push {which} AND push <> ''", texts)
        self.scratch.run(f"DELETE {which}", texts)

    def _give_up(self) -> None:
        """Children that have not changed are drift, unless the push that they wait for makes progress."""
        still = "FROM candidate WHERE stuck AND push NOT IN (SELECT push FROM moving)"
        for subject, sources, drifts in self.scratch.rows(f"SELECT subject, sources, drifts {still}"):
            self.drift(_subject(subject, sources), _drifts(drifts))
        self.scratch.run(f"DELETE {still}")
        self.scratch.run("DELETE FROM moving")

    def _keep(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self.scratch.fill(
            "INSERT INTO candidate (subject, sources, state, known, image, steady, push, drifts, stuck) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (subject) DO UPDATE SET state = excluded.state, "
            "known = excluded.known, image = excluded.image, steady = excluded.steady, push = excluded.push, "
            "drifts = excluded.drifts, stuck = excluded.stuck",
            rows,
        )


def _row(subject: Subject, finding: Finding, look: Observation, *, stuck: bool = False) -> tuple[Any, ...]:
    text, sources = subject._replace(sources=()).text(), _sources(subject)
    drifts = json.dumps([drift.text() for drift in finding.drifts])
    return text, sources, look.state, look.known, look.image, int(look.steady), finding.push, drifts, int(stuck)


def _sources(subject: Subject) -> str:
    """Return the sources as the elements of a JSON list, so that those of equal subjects can be joined by a comma."""
    return ",".join(map(json.dumps, subject.sources)) or "null"


def _subject(text: str, sources: str) -> Subject:
    return Subject.read(text)._replace(sources=tuple(sorted({*json.loads(f"[{sources}]")} - {None})))


def _drifts(text: str) -> list[Drift]:
    return [Drift.read(drift) for drift in json.loads(text)]
