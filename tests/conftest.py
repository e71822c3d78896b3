"""What all tests share: the emulators, each started once, and an environment in which nothing reaches AWS."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from zlib import crc32

import pytest
from emulators import Program, Unavailable, dynamodb_local, ministack, running, unavailable
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from projections.language import source

source._compose = lru_cache(32)(source._compose)  # most tests of a file load the same rules
settings.register_profile("default", deadline=None, print_blob=True, max_examples=50)
settings.load_profile("default")

for name in [name for name in os.environ if name.startswith(("AWS_", "LOCALSTACK_"))]:
    del os.environ[name]
os.environ |= {
    # moto's: clients of a process share the credentials that the first one found, maybe while moto had its own in the
    # environment, and DynamoDB Local has other tables for other credentials, as processes that tests start have them
    "AWS_ACCESS_KEY_ID": "FOOBARKEY",
    "AWS_SECRET_ACCESS_KEY": "FOOBARSECRET",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def pytest_collection_finish() -> None:
    """What is in memory before the tests is no garbage, and what they leave is searched seldom: a tenth of their time."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(tryfirst=True)  # xdist looks for groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests with an emulator run in one process: to start another costs more than they do.

    With DEEP_SHARE=2, every second deep test is left out, always the same ones: for slow machines.
    """
    if config.option.markexpr == "not deep":  # Hypothesis would parse all modules for constants to draw: 7 s a process
        providers._get_local_constants = lambda: providers._local_constants
    share = int(os.environ.get("DEEP_SHARE", "1"))
    left_out = {each for each in items if each.get_closest_marker("deep") and crc32(each.nodeid.encode()) % share}
    config.hook.pytest_deselected(items=[*left_out])
    kept = (item for item in items if item not in left_out)
    items[:] = sorted(kept, key=lambda item: "test_figures" not in item.nodeid)  # what takes longest begins first
    urls = {"dynamodb_local_url", "ministack_url"}
    emulators = {*urls, "dynamodb-local", "DynamoDB Local and moto", "MiniStack"}  # parameters of fixtures
    for item in items:
        if isinstance(item, pytest.Function) and not [*item.iter_markers("deep"), *item.iter_markers("xdist_group")]:
            parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
            if urls.intersection(item.fixturenames) or emulators.intersection(map(str, parameters)):
                item.add_marker(pytest.mark.xdist_group("emulators"))


def started(program: Callable[[int], Program]) -> Iterator[str]:
    """Skips tests whose emulator cannot run here."""
    try:
        with running(program) as url:
            yield url
    except Unavailable as error:
        unavailable(error)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tells what tests recorded as `measured`, which pytest keeps to itself where they pass."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    found = [text for each in reports for name, text in getattr(each, "user_properties", ()) if name == "measured"]
    if found:
        terminalreporter.section("measured")
        for text in dict.fromkeys(found):  # each phase of a test has a report
            terminalreporter.write_line(str(text))


@pytest.fixture(scope="session")
def dynamodb_local_url() -> Iterator[str]:
    """The address of DynamoDB Local, AWS's own engine: where emulators differ, it is right."""
    yield from started(dynamodb_local)


@pytest.fixture(scope="session")
def ministack_url() -> Iterator[str]:
    """The address of MiniStack."""
    yield from started(ministack)
