"""Case files: given, when, then as data.

    rules: rules.yaml            # relative to this file, or the rules themselves; may be left out
    redeliver: true              # every batch twice, and at the end the whole stream again; may be left out
    simulate: 200                # one more test of so many random histories; may be left out
    cases:
      - about: a like counts     # the test's name
        given: [{PK: "POST#p1", SK: METADATA, title: Notes}]
        when:
          - put: {PK: USER#bob, SK: "LIKE#POST#p1"}
          - update: {PK: "POST#p1", SK: METADATA, title: New}     # the key, and what is set
            remove: [draft]
            add: {views: 1}
          - delete: {PK: USER#bob, SK: "LIKE#POST#p1"}
          - settle                                                # the functions run before the next step
          - expire: {PK: USER#eve, SK: "LIKE#POST#p1"}            # deleted by TTL
        then: [{PK: "POST#p1", SK: METADATA, title: New, views: 1, likeCount: 0}]
        partial: true            # compare only the attributes in `then`; may be left out
        rules: [engagement]      # and those that these rules write, on all items; may be left out
        gone: [{PK: USER#bob, SK: "LIKE#POST#p1"}]                # or [USER#bob, "LIKE#POST#p1"]
        quarantined: [{rule: engagement, reason: part of it}]     # or `any`
        asks: [{query: likers, with: {postId: p1}, gives: [{userId: bob}]}]
        ranks: [{rule: places, board: {board: weekly}, scores: [30, 20, 20]}]

`then` lists the items with derived values, `gone` those that should not exist. All others should be as the application
wrote them. `gives` lists the items of a query's answer, in order, each with some of its attributes. `limit: 2` and `page: 1`
select one page. `ranks` lists the scores of a board, the best first. `then: any` accepts all items; it is the default of a
case with `asks` and without `gone`.

With several tables, `given`, `then` and `gone` are mappings of tables to lists, and steps have `table`. Sets are
`{SS: [a, b]}` and `{NS: [1, 2]}`, binary is `{$binary: base64}`. Numbers keep all their digits, dates are text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projections.engine.rejections import Rejected
from projections.errors import Problem, UsageError
from projections.language.mistakes import Location, Mistake, dotted
from projections.language.source import Source, UnreadableError, read
from projections.language.syntax import suggest
from projections.local.steps import STEPS, step_mistakes
from projections.testing.asks import ask_differences, ask_mistakes
from projections.testing.comparison import Difference
from projections.testing.rank_cases import rank_differences, rank_mistakes
from projections.testing.scenario import Scenario

__all__ = ["CASE", "FILE", "Case", "Suite", "cases_in", "read_cases"]

FILE = {
    "rules": "the rule file, relative to this file, or the rules themselves; else those of pytest's configuration",
    "redeliver": "`true`: every batch is delivered twice, and at the end the whole stream again",
    "simulate": "a number of random histories, which are one more test",
    "cases": "the cases",
}
"""The names in a case file, with their meaning."""

CASE = {
    "about": "a sentence, the test's name",
    "given": "items that the application puts first; then the functions run",
    "when": "steps, one after the other; the functions run after the last one, and at each `settle`",
    "then": "the items with derived values; all others should be as the application wrote them. `any` accepts all items",
    "partial": "`true`: only the attributes in `then` are compared, and no other items",
    "rules": "a list of rules: the attributes in `then` and those that these rules write are compared, on all items",
    "gone": "items, or keys such as `[POST#p1, METADATA]`, that should not exist",
    "quarantined": "rejections, each with any of `rule`, `key` and a part of its `reason`; `any` accepts all",
    "asks": "queries, each with the items that it `gives`, in order: `{query: NAME, with: {…}, gives: […]}`",
    "ranks": "boards of `rank`, the best score first: `{rule: NAME, board: {…}, scores: […]}`",
}
"""The names in a case, with their meaning."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its name, its line in the file (from 1), and its content."""

    about: str
    line: int
    content: Mapping[str, Any]

    def play(self, scenario: Scenario) -> None:
        """Run the case. Raises AssertionError if the items differ, UsageError if the case does not fit the rules."""
        __tracebackhide__ = True
        self.write(scenario)
        self.check(scenario)

    @property
    def narrow(self) -> bool:
        """Whether only the attributes of some items are compared: `partial` or `rules`."""
        return bool(self.content.get("partial") or self.content.get("rules"))

    def check(self, scenario: Scenario) -> None:
        """Compare the results with what the case expects, after `write`. Raises as `play`."""
        __tracebackhide__ = True
        then = self._then
        scenario.then_all(
            None if then == "any" else dict(_by_table(scenario, then)),
            gone=dict(_by_table(scenario, self.content.get("gone", ()))),
            quarantined=self.content.get("quarantined", ()),
            partial=self.content.get("partial", False),
            rules=self.content.get("rules", ()),
        )
        ranks = [line for one in self.content.get("ranks", ()) for line in rank_differences(scenario, one)]
        if ranks:
            raise AssertionError("\n" + "\n".join(ranks))
        if lines := [line for ask in self.content.get("asks", ()) for line in ask_differences(scenario, ask)]:
            raise AssertionError("\n" + "\n".join(lines))

    @property
    def _then(self) -> Any:
        return self.content.get("then", "any" if "asks" in self.content and "gone" not in self.content else ())

    def differences(self, scenario: Scenario) -> list[Difference]:
        """Return the items that differ from `then` and `gone`, after `write`."""
        if self._then == "any":
            return []
        return scenario.differences(
            dict(_by_table(scenario, self._then)),
            dict(_by_table(scenario, self.content.get("gone", ()))),
            partial=self.content.get("partial", False),
            rules=self.content.get("rules", ()),
        )

    def rejections(self, scenario: Scenario) -> tuple[list[Rejected], list[int]]:
        """Return what differs from `quarantined`, after `write`: as `Scenario.rejections`."""
        wanted = self.content.get("quarantined", ())
        return ([], []) if wanted == "any" else scenario.rejections(wanted, self.content.get("rules", ()))

    def write(self, scenario: Scenario) -> None:
        """Do what the application does in the case: `given` and `when`."""
        __tracebackhide__ = True
        for table, items in _by_table(scenario, self.content.get("given", ())):
            scenario.given(*items, table=table)
        for step in self.content.get("when", ()):
            scenario.do(step)


@dataclass(frozen=True, slots=True)
class Suite:
    """A case file. `rules` is a path or the rules themselves; `simulate` is a number of histories, or 0."""

    rules: str | Mapping[str, Any] | None
    redeliver: bool | None
    simulate: int
    cases: tuple[Case, ...]


def read_cases(path: Path, *, more: frozenset[str] = frozenset()) -> Suite:
    """Return the cases of a file. Each may also have the names in `more`. Raises UsageError with every mistake."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    return cases_in(text, path, more=more)


def cases_in(text: str, path: Path, *, more: frozenset[str] = frozenset()) -> Suite:
    """Return the cases of the text of a file, as `read_cases`."""
    try:
        source = read(text, exact=True)
    except UnreadableError as error:
        raise UsageError(str(Problem(str(path), error.line, error.column, "(file)", error.message))) from None
    mistakes = [*source.mistakes, *_mistakes(source.data, more)]
    if mistakes:
        found = {Problem(str(path), *source.position(one), dotted(one.path), one.message) for one in mistakes}
        raise UsageError(*map(str, sorted(found, key=lambda one: (one.line, one.column))))
    data = source.data
    return Suite(
        data.get("rules"),
        data.get("redeliver"),
        data.get("simulate", 0),
        tuple(
            Case(
                case["about"], _line(source, number), {name: value for name, value in case.items() if value is not None}
            )
            for number, case in enumerate(data.get("cases") or ())
        ),
    )


def _line(source: Source, number: int) -> int:
    return source.position(Mistake(("cases", number), ""))[0]


def _mistakes(data: object, more: frozenset[str]) -> Iterator[Mistake]:
    if not isinstance(data, dict):
        yield Mistake((), "expected a mapping with `cases`, and optionally `rules`, `redeliver`, `simulate`")
        return
    yield from _names(data, (), FILE)
    kinds: dict[str, tuple[type | tuple[type, ...], str]] = {
        "rules": ((str, dict), "a file, or the rules themselves"),
        "redeliver": (bool, "true or false"),
        "cases": (list, "a list of cases"),
    }
    for name, (kind, words) in kinds.items():
        if data.get(name) is not None and not isinstance(data[name], kind):
            yield Mistake((name,), f"expected {words}")
    histories = data.get("simulate", 1)
    if type(histories) is not int or histories < 1:
        yield Mistake(("simulate",), "expected a number of histories, 1 or more")
    if not data.get("cases") and "simulate" not in data:
        yield Mistake((), "nothing to test: give `cases`, or `simulate: 200`")
    seen: dict[str, int] = {}
    for number, case in enumerate(data["cases"] if isinstance(data.get("cases"), list) else ()):
        yield from _of_case(case, ("cases", number), seen, more)


def _of_case(case: object, path: Location, seen: dict[str, int], more: frozenset[str]) -> Iterator[Mistake]:
    if not isinstance(case, dict):
        yield Mistake(path, "expected a case: a mapping with `about`, `given`, `when`, `then`")
        return
    yield from _names(case, path, CASE.keys() | more)
    about = case.get("about")
    if not isinstance(about, str) or not about:
        yield Mistake((*path, "about"), "every case needs a sentence that describes it")
    elif about in seen:
        yield Mistake((*path, "about"), f"case {seen[about] + 1} has the same sentence; use another one")
    else:
        seen[about] = int(path[-1])
    for name in ("given", "then", "gone"):
        value = None if (name, case.get(name)) == ("then", "any") else case.get(name)
        lists = value.values() if isinstance(value, dict) else [value]
        if value is not None and not all(isinstance(some, list) for some in lists):
            yield Mistake((*path, name), "expected a list, or lists by table")
    if type(case.get("partial", False)) is not bool:
        yield Mistake((*path, "partial"), "expected true or false")
    names = case.get("rules")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        yield Mistake((*path, "rules"), "expected a list of rules that are compared, such as `[likes]`")
    refused = case.get("quarantined")
    if refused not in (None, "any") and not (isinstance(refused, list) and all(isinstance(r, dict) for r in refused)):
        yield Mistake((*path, "quarantined"), "expected `any`, or a list of mappings with `rule`, `key`, `reason`")
    if case.get("asks") is not None:
        yield from ask_mistakes(case["asks"], (*path, "asks"))
    if case.get("ranks") is not None:
        yield from rank_mistakes(case["ranks"], (*path, "ranks"))
    steps = case.get("when")
    if steps is not None and not isinstance(steps, list):
        yield Mistake((*path, "when"), f"expected a list of steps: {', '.join(STEPS)}")
        return
    for number, step in enumerate(steps or ()):
        if step != "settle":
            yield from step_mistakes(step, (*path, "when", number))


def _names(data: Mapping[str, Any], path: Location, known: Collection[str]) -> Iterator[Mistake]:
    for name in data:
        if name not in known:
            hint = suggest(name, sorted(known)) or f"; allowed are {', '.join(sorted(known))}"
            yield Mistake((*path, name), f"unknown{hint}", at_key=True)


def _by_table(scenario: Scenario, content: Any) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(content, Mapping):
        yield from content.items()
    elif content:
        tables = list(scenario.program.tables)
        if len(tables) > 1:
            raise UsageError(
                f"the rules have several tables ({', '.join(tables)}): list items by table, such as `{tables[0]}: […]`"
            )
        yield tables[0], content
