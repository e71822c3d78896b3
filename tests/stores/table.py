"""Tables of cases that every store has to pass: one test for each store and table, which runs all cases.

A node of pytest for each case would cost more than the case, a few milliseconds: there are 2,012.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from itertools import count, product
from typing import Any

import pytest
from known import reason

from projections.engine.store import Store

_partitions = count(1)


def partition() -> str:
    """A partition that no other test and no other case uses."""
    return f"P{next(_partitions)}"


def named(cases: Iterable[Any]) -> Mapping[str, Any]:
    """Cases by their names: a mapping has them; other cases are named by their text."""
    if isinstance(cases, Mapping):
        return cases
    return {case if isinstance(case, str) else repr(case): case for case in cases}


def each(**tables: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with every combination of cases, an argument from each table, and report all that go wrong.

    A combination is named in known.py by its cases, joined by "-". One that is listed there has to fail.
    """
    by_name = {argument: named(cases) for argument, cases in tables.items()}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own_partition = "p" in signature(function).parameters

        def test(shared: Store, request: pytest.FixtureRequest) -> None:
            backend, wrong = request.node.callspec.params["shared"], list[BaseException]()
            for chosen in product(*(cases.items() for cases in by_name.values())):
                case = "-".join(name for name, _ in chosen)
                arguments = dict(zip(by_name, (value for _, value in chosen), strict=True))
                if own_partition:
                    arguments["p"] = partition()
                fact = reason(backend, function.__name__, case)
                try:
                    function(shared, **arguments)
                except (Exception, pytest.fail.Exception) as error:
                    if fact is None:
                        error.add_note(f"Case: {case}")
                        wrong.append(error)
                else:
                    if fact is not None:
                        wrong.append(AssertionError(f"Case {case} passes, but known.py expects it to fail: {fact}"))
            if wrong:
                raise BaseExceptionGroup(f"{len(wrong)} cases of {function.__name__} on {backend}", wrong)

        test.__name__, test.__doc__ = function.__name__, function.__doc__
        return test

    return decorate
