"""Case files: given, when, then as data. `asks` are queries with the items that they give, `ranks` boards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from projections.api import ask, ranking
from projections.errors import Problem, UsageError
from projections.language.files import text_of_file
from projections.language.source import UnreadableError, read
from projections.language.syntax import Location, Mistake, dotted, suggest
from projections.language.values import number_text, plain_item, plain_items
from projections.local.items import json_words, wire_item
from projections.local.steps import STEPS, step_mistakes
from projections.printable import printable
from projections.testing.scenario import Scenario

_NAMES = ("query", "with", "gives", "limit", "page")


def ask_mistakes(asks: object, path: Location) -> Iterator[Mistake]:
    """Yield the mistakes in the form of `asks`."""
    if not isinstance(asks, list):
        yield Mistake(path, "expected a list of `{query: NAME, with: {…}, gives: […]}`")
        return
    for number, question in enumerate(asks):
        place = (*path, number)
        if not isinstance(question, dict) or not isinstance(question.get("query"), str) or "gives" not in question:
            yield Mistake(place, "expected `{query: NAME, with: {…}, gives: […]}`")
            continue
        yield from _unknown(question, place, _NAMES)
        if not isinstance(question.get("with", {}), dict):
            yield Mistake((*place, "with"), "expected parameters, such as `{userId: u1}`")
        if not (isinstance(question["gives"], list) and all(isinstance(item, dict) for item in question["gives"])):
            yield Mistake((*place, "gives"), "expected a list of items, each with some of its attributes")
        for name in ("limit", "page"):
            if type(question.get(name, 1)) is not int or question.get(name, 1) < 1:
                yield Mistake((*place, name), "expected a number, 1 or more")


def ask_differences(scenario: Scenario, question: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line with the query, and below it the differences from `gives`; nothing if there are none.

    Items are compared in order, each by the attributes that `gives` lists.
    """
    answer = ask(scenario.store, scenario.rules, question["query"], question.get("with"))
    page = answer.page(question.get("limit"))
    for _ in range(question.get("page", 1) - 1):
        page = type(page)([]) if page.token is None else answer.page(question.get("limit"), page.token)
    wanted = [plain_item(wire_item(item, f"gives of query {question['query']}")) for item in question["gives"]]
    actual = plain_items(page.items)
    variables = {
        name for entity in scenario.program.entities.values() for pattern in entity.patterns for name in pattern.names
    }
    lines: list[str] = []
    for number in range(max(len(wanted), len(actual))):
        if number >= len(actual):
            lines.append(f"  - item {number + 1}: {json_words(wanted[number])}")
        elif number >= len(wanted):
            lines.append(f"  + item {number + 1}: {json_words(actual[number])}")
        else:
            expected, got = wanted[number], actual[number]
            names = [name for name in expected if _words(expected, name) != _words(got, name)]
            lines += [f"  item {number + 1}:"] if names else []
            for name in names:
                hint = f" ({name} is a variable of the key: compare the key, or list it in `attributes` of the query)"
                key = name in variables and name not in actual[number]
                lines.append(f"  - {name}: {_words(wanted[number], name)}")
                lines.append(f"  + {name}: {_words(actual[number], name)}{hint if key else ''}")
    if lines:
        values = [f"{name}={json_words(value)}" for name, value in question.get("with", {}).items()]
        yield from map(
            printable,
            [f"{' '.join(['query', question['query'], *values])} gives other items (- expected, + found):", *lines],
        )


def _words(item: Mapping[str, Any], name: str) -> str:
    return json.dumps(item[name], ensure_ascii=False, sort_keys=True) if name in item else "absent"


_RANK_NAMES = {"rule", "board", "scores"}
_RANK_FORM = "expected `{rule: NAME, board: {…}, scores: […]}`, the best score first, perhaps with `sum: N`"


def rank_mistakes(ranks: object, path: Location) -> Iterator[Mistake]:
    """Yield the mistakes in the form of `ranks`."""
    for number, entry in enumerate(ranks if isinstance(ranks, list) else [None]):
        whole = isinstance(entry, dict) and entry.keys() - {"sum"} == _RANK_NAMES and isinstance(entry["rule"], str)
        if not (whole and isinstance(entry["board"], dict) and isinstance(entry["scores"], list)):
            yield Mistake((*path, number) if isinstance(ranks, list) else path, _RANK_FORM)
        elif not all(
            isinstance(score, int | float | Decimal) and not isinstance(score, bool)
            for score in [*entry["scores"], entry.get("sum", 0)]
        ):
            yield Mistake((*path, number, "scores"), "expected a list of numbers")


def rank_differences(scenario: Scenario, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line with the board, and its scores with their ranks as they are and as they should be; nothing if equal."""
    due = [Decimal(str(score)) for score in entry["scores"]]
    expected = [(score, 1 + due.index(score)) for score in due]
    board = ranking(scenario.store, scenario.rules, entry["rule"], entry["board"])
    places = (board.at(position) for position in range(1, board.between().count + 1))
    actual = [(place.score, place.rank) for place in places if place is not None]
    variables = [f"{name}={json_words(value)}" for name, value in entry["board"].items()]
    title = " ".join(["the board", entry["rule"], *variables])
    if "sum" in entry and (amount := board.sum_between().sum) != Decimal(str(entry["sum"])):
        yield printable(f"{title} has the sum {number_text(amount)} instead of {entry['sum']}")
    if actual != expected:
        yield printable(f"{title} has other scores (with their ranks; - expected, + found):")
        yield f"  - {_places_words(expected)}"
        yield f"  + {_places_words(actual)}"


def _places_words(places: list[tuple[Decimal, int]]) -> str:
    return ", ".join(f"{number_text(score)} ({rank})" for score, rank in places) or "none"


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
    "gone": "items, or keys such as `[POST#p1, METADATA]`, that should not exist",
    "quarantined": "rejections, each with any of `rule`, `key` and a part of its `reason`; `any` accepts all",
    "asks": "queries, each with the items that it `gives`, in order: `{query: NAME, with: {…}, gives: […]}`",
    "ranks": "boards of `rank`, the best score first: `{rule: NAME, board: {…}, scores: […]}`, perhaps with `sum: N`",
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

    def check(self, scenario: Scenario) -> None:
        """Compare the results with what the case expects, after `write`. Raises as `play`."""
        __tracebackhide__ = True
        default = "any" if "asks" in self.content and "gone" not in self.content else ()
        then = self.content.get("then", default)
        scenario.then_all(
            None if then == "any" else dict(_by_table(scenario, then)),
            gone=dict(_by_table(scenario, self.content.get("gone", ()))),
            quarantined=self.content.get("quarantined", ()),
            partial=self.content.get("partial", False),
        )
        for name, differences in (("ranks", rank_differences), ("asks", ask_differences)):
            if lines := [line for entry in self.content.get(name, ()) for line in differences(scenario, entry)]:
                raise AssertionError("\n" + "\n".join(lines))

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


def read_cases(path: Path, *, extra_names: frozenset[str] = frozenset()) -> Suite:
    """Return the cases of a file. Each may also have the names in `extra_names`. Raises UsageError with every mistake."""
    try:
        text = text_of_file(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    try:
        source = read(text)
    except UnreadableError as error:
        raise UsageError(str(Problem(str(path), error.line, error.column, "(file)", error.message))) from None
    mistakes = [*source.mistakes, *_mistakes(source.data, extra_names)]
    if mistakes:
        problems = {Problem(str(path), *source.position(bad), dotted(bad.path), bad.message) for bad in mistakes}
        raise UsageError(*map(str, sorted(problems, key=lambda problem: (problem.line, problem.column))))
    data = source.data
    return Suite(
        data.get("rules"),
        data.get("redeliver"),
        data.get("simulate", 0),
        tuple(
            Case(
                case["about"],
                source.position(Mistake(("cases", number), ""))[0],
                {name: value for name, value in case.items() if value is not None},
            )
            for number, case in enumerate(data.get("cases") or ())
        ),
    )


def _mistakes(data: object, extra_names: frozenset[str]) -> Iterator[Mistake]:
    if not isinstance(data, dict):
        yield Mistake((), "expected a mapping with `cases`, and optionally `rules`, `redeliver`, `simulate`")
        return
    yield from _unknown(data, (), sorted(FILE))
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
        yield from _of_case(case, ("cases", number), seen, extra_names)


def _of_case(case: object, path: Location, seen: dict[str, int], extra_names: frozenset[str]) -> Iterator[Mistake]:
    if not isinstance(case, dict):
        yield Mistake(path, "expected a case: a mapping with `about`, `given`, `when`, `then`")
        return
    yield from _unknown(case, path, sorted(CASE.keys() | extra_names))
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
        if value is not None and not all(isinstance(steps, list) for steps in lists):
            yield Mistake((*path, name), "expected a list, or lists by table")
    if type(case.get("partial", False)) is not bool:
        yield Mistake((*path, "partial"), "expected true or false")
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


def _unknown(data: Mapping[str, Any], path: Location, known: Sequence[str]) -> Iterator[Mistake]:
    for name in data:
        if name not in known:
            hint = suggest(name, known) or f"; allowed are {', '.join(known)}"
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
