"""The command line, called as a user calls it; and what shows pictures, for the tests of what is looked at."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from emulators import unavailable
from moto import mock_aws
from place import Place

from projections.aws.queues import Queue
from projections.cli.main import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that look at pictures in a browser are deep."""
    for item in items:
        if isinstance(item, pytest.Function) and "chromium" in item.fixturenames:
            item.add_marker(pytest.mark.deep)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The machine's own Chromium, headless. Skipped without one.

    Not for the whole session: as long as playwright runs, nothing else in the process can run an event loop.
    """
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        unavailable("these tests need Chromium on PATH (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    quiet = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-sync", *quiet])
        yield browser
        browser.close()


@pytest.fixture
def watched(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page. Messages of the console, and requests that leave the disk or this machine, fail the test."""
    heard: list[str] = []
    requested: list[str] = []
    tabs: list[Page] = []

    def opened(url: str, *, scheme: Any = "light", width: int = 1440, height: int = 900) -> Page:
        local = "file:" if url.startswith("file:") else "http://127.0.0.1:"
        tab = chromium.new_page(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        tab.on("console", lambda message: heard.append(message.text))
        tab.on("pageerror", lambda error: heard.append(str(error)))
        tab.on("request", lambda asked: None if asked.url.startswith(local) else requested.append(asked.url))
        tab.goto(url)
        tabs.append(tab)
        return tab

    yield opened
    for tab in tabs:
        tab.close()
    assert heard == []
    assert requested == []


@pytest.fixture(scope="module", autouse=True)
def indexes_without_lag() -> Iterator[None]:
    """Emulators update indexes with their tables: otherwise a test waits 5 s for each batch that pushes to children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("projections.engine.stages.SETTLE_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module", autouse=True)
def queues_without_long_polling() -> Iterator[None]:
    """Emulators have all messages at once: otherwise a test waits 2 s for the end of each queue."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cast("dict[str, object]", Queue.receive.__kwdefaults__), "wait", 0)
        yield


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; its exit code, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, captured.out, captured.err

    return run


@pytest.fixture(params=["DynamoDB Local and moto"])
def place(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Place]:
    if request.param == "MiniStack":
        url: str = request.getfixturevalue("ministack_url")
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield Place(monkeypatch, capsys, tmp_path, url)
    else:
        url = request.getfixturevalue("dynamodb_local_url")
        with mock_aws():
            yield Place(monkeypatch, capsys, tmp_path, url)
