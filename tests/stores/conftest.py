from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from backends import BACKENDS, backend
from known import reason

from projections.engine.store import Store

_partitions = count(1)


@pytest.fixture(scope="module", params=BACKENDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Store]:
    with backend(request.param, request) as store:
        yield store


@pytest.fixture
def store(shared: Store, request: pytest.FixtureRequest) -> Store:
    """A store that other tests use as well: a test keeps to its own partitions."""
    name = request.node.callspec.params["shared"]
    case = request.node.callspec.id.removeprefix(name).removeprefix("-")
    fact = reason(name, request.node.originalname, case)
    if fact is not None:
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=fact))
    return shared


@pytest.fixture
def p() -> str:
    """A partition that no other test uses."""
    return f"P{next(_partitions)}"
