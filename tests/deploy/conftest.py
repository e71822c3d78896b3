"""The real SAM command line against MiniStack."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from emulators import ROOT, Unavailable, running, unavailable
from sam_cli import SAM, Sam, ministack_with_sam


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a stack are in one process. First: xdist looks for groups in the same hook.

    Tests that deploy are deep; those of templates, locks and handlers are not.
    """
    for item in items:
        if Path(__file__).parent in item.path.parents and isinstance(item, pytest.Function):
            if {"sam", "emulator"} & set(item.fixturenames):
                item.add_marker(pytest.mark.deep)
            if "infrastructure" in item.path.stem:
                item.add_marker(pytest.mark.xdist_group("infrastructure"))
            elif "sam" in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group("deploy"))


@contextmanager
def ministack() -> Iterator[str]:
    """Skips where SAM or MiniStack is missing."""
    try:
        if not SAM.exists():
            raise Unavailable("the SAM command line is not installed: `make sam`")
        with running(ministack_with_sam) as url:
            yield url
    except Unavailable as error:
        unavailable(error)


@pytest.fixture(scope="session")
def sam() -> Iterator[Sam]:
    with ministack() as url:
        yield Sam(url)


@pytest.fixture
def emulator() -> Iterator[str]:
    """A MiniStack of the test's own: the mappings of other tests' stacks would be polled beside its own."""
    with ministack() as url:
        yield url


@pytest.fixture(scope="session")
def built(sam: Sam) -> Path:
    """The package, for this machine's Python, with which MiniStack runs it beside its own boto3, as Lambda does."""
    sam.run("build", LAMBDA_PLATFORM="native", BUILD_PYTHON=sys.executable)
    return ROOT / ".aws-sam/build/StreamFunction"
