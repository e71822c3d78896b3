"""The real SAM command line against MiniStack."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators import ROOT, Unavailable, running
from sam_cli import SAM, Sam, ministack_with_sam


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what was built are in one process. First: xdist looks for groups in the same hook.

    Tests that deploy are deep; those of templates, locks and handlers are not.
    """
    for item in items:
        if Path(__file__).parent in item.path.parents and isinstance(item, pytest.Function):
            shared = {"test_runbooks": "runbooks", "test_infrastructure": "infrastructure"}.get(item.path.stem)
            if "sam" in item.fixturenames:
                item.add_marker(pytest.mark.deep)
                shared = shared or "deploy"
            if shared:
                item.add_marker(pytest.mark.xdist_group(shared))


@pytest.fixture(scope="session")
def sam() -> Iterator[Sam]:
    """Skips where SAM or MiniStack is missing; where REQUIRE_EMULATORS is set, as in CI, that is a failure."""
    try:
        if not SAM.exists():
            raise Unavailable("the SAM command line is not installed: `make sam`")
        with running(ministack_with_sam) as url:
            yield Sam(url)
    except Unavailable as error:
        if os.environ.get("REQUIRE_EMULATORS"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def built(sam: Sam) -> Path:
    """The package, for this machine's Python, which is what MiniStack runs it with."""
    sam.run("build", LAMBDA_PLATFORM="native", BUNDLE_BOTO3="1", BUILD_PYTHON=sys.executable)
    return ROOT / ".aws-sam/build/StreamFunction"
