from __future__ import annotations

from collections.abc import Iterator

import pytest
from backends import BACKENDS, backend
from known import reason
from table import partition

from projections.engine.store import Store


@pytest.fixture(scope="module", params=BACKENDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Store]:
    with backend(request.param, request) as store:
        yield store


@pytest.fixture
def store(shared: Store, request: pytest.FixtureRequest) -> Store:
    """A store that other tests use as well: a test keeps to its own partitions."""
    fact = reason(request.node.callspec.params["shared"], request.node.originalname, "")
    if fact is not None:
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=fact))
    return shared


@pytest.fixture
def p() -> str:
    return partition()
