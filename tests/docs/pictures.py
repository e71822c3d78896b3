"""The pictures in docs/pictures/: the console on a local table, and the start page of the site, as Chromium shows them.

make docs && python tests/docs/pictures.py      # write them; needs Chromium, Java and npm
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["NAMES", "PICTURES"]

PICTURES = ROOT / "docs" / "pictures"
NAMES = ("console-rules", "console-item", "console-phone", "site")
RULES = Path(__file__).with_name("buses.yaml")
WIDE, PHONE = (1280, 680), (390, 844)
LINES = {12: "Harbour", 31: "Old town – Airport", 44: "Night bus"}
AGES = {"tripById": (0.4, 1.1), "sold": (0.5, 1.3), "delaysByMonth": (0.6, 2.0), "driverInTrip": (0.7, 41.0)}
"""Freshness of rules as CloudWatch has it of a deployed stack: p50 and p99 in seconds."""
DRIVERS = ("Zoe Okafor", "Mats Lind", "Ana Reyes")


def items() -> Iterator[dict[str, Any]]:
    """Yield the items that the application writes."""
    for line, name in LINES.items():
        yield {"PK": f"LINE#{line}", "SK": "INFO", "name": name}
    for number, name in enumerate(DRIVERS):
        yield {"PK": f"DRIVER#d{number}", "SK": "PROFILE", "name": name}
    for number in range(1, 13):
        line, driver = [*LINES][number % 3], f"d{number % 3}"
        key = {"PK": f"LINE#{line}", "SK": f"TRIP#t{number}"}
        yield {**key, "driverId": driver, "departsAt": f"2026-03-{number:02d}T08:00:00Z"}
        for seat in range(number % 5 + 1):
            key = {"PK": f"TRIP#t{number}", "SK": f"SEAT#{seat + 1}A"}
            yield {**key, "price": 3 + seat, "status": "refunded" if (number, seat) == (7, 1) else "sold"}
    for day in range(1, 8):
        key = {"PK": f"LINE#{[*LINES][day % 2]}", "SK": f"DELAY#2026-03-{day:02d}T08:{day:02d}:00Z"}
        yield {**key, "minutes": day * 3, "cause": ("ice", "traffic", "engine")[day % 3]}


def projections(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "projections", *arguments]


@contextmanager
def console(url: str) -> Iterator[str]:
    """A console on a table that has the items and their derived values; its address."""
    from projections.aws.clients import client
    from projections.cli import status
    from projections.cli.console import LiveSource
    from projections.cli.options import Sources, Tables
    from projections.console.console_pages import failure_answer, routes
    from projections.console.server import Server
    from projections.language.values import wire

    dev = projections(
        "dev", "--rules", str(RULES), "--table", "buses", "--endpoint-url", url, "--until-idle", "--create"
    )
    subprocess.run(dev, check=True, stdout=subprocess.DEVNULL)
    dynamodb = client(endpoint_url=url)
    for item in items():
        dynamodb.put_item(TableName="buses", Item={name: wire(value) for name, value in item.items()})
    subprocess.run(dev, check=True, stdout=subprocess.DEVNULL)
    wrong = {"Key": {"PK": wire("TRIP#t9"), "SK": wire("INFO")}, "ExpressionAttributeNames": {"#s": "income"}}
    change = {"UpdateExpression": "SET #s = :s", "ExpressionAttributeValues": {":s": wire(99)}}
    dynamodb.update_item(TableName="buses", **wrong, **change)  # what a faulty release of the application would do
    status.rule_ages = lambda *given: AGES  # type: ignore[assignment]  # a local table has no CloudWatch
    given = Tables(str(RULES), ("buses",), url, "eu-central-1", "buses-ledger")
    source = LiveSource(given, None, Sources(None, None, None, None))
    with Server(0, routes(source), failure_answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.url.rstrip("/")
        server.shutdown()


@contextmanager
def site() -> Iterator[str]:
    """The built site; its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

    if not (ROOT / "site" / "index.html").is_file():
        sys.exit("There is no site/index.html. Run `make docs` first")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(ROOT / "site"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
        server.shutdown()


def taken(browser: Browser, name: str, url: str, size: tuple[int, int], scheme: Any = "light", click: str = "") -> None:
    """Write one picture."""
    tab = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce")
    tab.goto(url)
    if click:
        tab.click(click)
    tab.wait_for_timeout(1_500)
    tab.screenshot(path=PICTURES / f"{name}.png")
    tab.close()


def main(directory: Path | None = None) -> None:
    from playwright.sync_api import sync_playwright

    from tests.emulators import dynamodb_local, running

    global PICTURES
    PICTURES = directory or PICTURES
    os.environ |= {"AWS_DEFAULT_REGION": "eu-central-1", "PYTHONPATH": str(ROOT)}
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, running(dynamodb_local) as url, console(url) as shown, site() as pages:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        item = f"{shown}/item?key=PK%3DTRIP%23t9%2CSK%3DINFO"
        taken(browser, "console-rules", shown + "/", WIDE)
        taken(browser, "console-item", item, WIDE)
        taken(browser, "console-phone", item, PHONE)
        taken(browser, "site", pages, WIDE)
        if directory:  # not in docs/: other sizes and colours, to look at
            taken(browser, "x-rules-dark", shown + "/", WIDE, "dark", click="button.rule[data-rule=rule-sold]")
            taken(browser, "x-rules-phone", shown + "/", PHONE)
            taken(browser, "x-item-dark", item, WIDE, "dark")
            taken(browser, "x-item-empty", f"{shown}/item", WIDE)
            taken(browser, "x-item-missing", f"{shown}/item?key=PK%3DTRIP%23nope%2CSK%3DINFO", WIDE)
            taken(browser, "x-item-wrong", f"{shown}/item?key=nope", WIDE)
            taken(browser, "x-site-dark", pages, WIDE, "dark")
            taken(browser, "x-site-phone", pages, PHONE)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
