"""The console: what its server refuses, and what a person sees in a browser.

With SCREENSHOTS=directory the pages are also written there as PNG.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from endpoint_tables import EndpointTables
from place import Place
from test_graph_page import CONTRAST, shot

from projections.cli.console import LiveSource
from projections.cli.options import Sources
from projections.cli.options import Tables as Options
from projections.console.console_pages import failure_answer, routes
from projections.console.server import Answer, Route, Server
from projections.engine.registry import Registry
from projections.engine.store import ItemKey, Update
from projections.errors import Transient, UsageError
from projections.language.loader import loads
from projections.language.program import Program
from projections.local.event_replay import replay, schemas
from projections.operations.backfill.progress import Progress, Run

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
EVENTS = json.loads((ROOT / "events/social.json").read_text())["Records"]
META = ItemKey("main", "POST#p1", "METADATA")
EVIL = "<script>document.title = 'owned'</script>\u001b\u202e"


@contextmanager
def served(made: dict[str, Route]) -> Iterator[Server]:
    with Server(0, made, failure_answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def asked(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=5)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def test_server_answers_this_machine_only_and_refuses_everything_but_get() -> None:
    calls: list[dict[str, str]] = []

    def route(given: Any, nonce: str) -> Answer:
        calls.append(dict(given))
        return Answer(nonce)

    def broken(error: Exception) -> Route:
        def route(given: Any, nonce: str) -> Answer:
            raise error

        return route

    made = {
        "/": route,
        "/item": broken(UsageError("no <key>")),
        "/api/status": broken(Transient("throttled")),
        "/bug": broken(ValueError("x")),
    }
    with served(made) as server:
        assert server.server_address[0] == "127.0.0.1"
        status, nonce, headers = asked(server, "/?in.name=a%20b&in.name=c")
        assert (status, calls) == (200, [{"in.name": "c"}])
        assert (
            f"script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'"
            in (headers["Content-Security-Policy"])
        )
        assert headers["Cache-Control"] == "no-store"
        assert asked(server, "/")[1] != nonce
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost:1@evil.example", "", "localhost:80:80"):
            assert asked(server, "/", Host=host)[0] == 403, host
        for host in ("localhost", "LOCALHOST:99", "127.0.0.1:1"):
            assert asked(server, "/", Host=host)[0] == 200, host
        for site, expected in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            assert asked(server, "/", Sec_Fetch_Site=site)[0] == expected
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert asked(server, "/", method)[0] == 501
        assert asked(server, "/../etc/passwd")[0] == 404
        status, text, _ = asked(server, "/item?key=x")
        assert (status, "no &lt;key&gt;" in text) == (400, True)
        assert asked(server, "/api/status")[:2] == (502, json.dumps({"error": "throttled"}))
        status, text, _ = asked(server, "/bug")
        assert (status, "internal error, please report it: ValueError: x" in text) == (500, True)


class Sample:
    """Tables with the sample events, under rules that are active, and the console of a rule file."""

    def __init__(self, url: str, tables: EndpointTables, program: Program, path: Path) -> None:
        self.url, self.tables, self.program, self.path = url, tables, program, path

    def source(self, rules: Path | None = None) -> LiveSource:
        names = dict(self.tables.names)
        ledger = names.pop("ledger")
        given = Options(
            str(rules or ROOT / "projections/rules/social.yaml"),
            tuple(f"{logical}={name}" for logical, name in names.items()),
            self.url,
            None,
            ledger,
        )
        return LiveSource(given, None, Sources(None, None, None, None))


@pytest.fixture
def sample(dynamodb_local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sample]:
    for name in ("QUARANTINE_QUEUE_URL", "TASK_QUEUE_URL", "STACK_NAME", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    program = Program.from_document(loads((ROOT / "projections/rules/social.yaml").read_text()).document())
    with EndpointTables(dynamodb_local_url, schemas(program)) as tables:
        replay(program, EVENTS, tables)
        yield Sample(dynamodb_local_url, tables, program, tmp_path)


def test_states_of_rules_are_beside_the_picture_and_follow_the_ledger(
    sample: Sample, watched: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "projections/rules/social.yaml").read_text()
    source = sample.source()
    with served(dict(routes(source))) as server:
        tab = watched(server.url)
        tab.wait_for_selector("#live li")
        marks = tab.locator("#stage button[data-rule=rule-engagement] .live")
        assert marks.get_attribute("title") == "active"
        assert "epoch 1" in tab.locator("#live").inner_text()
        assert "Read-only." in tab.locator(".live-foot").inner_text()
        shot(tab, "console-rules")
        tab.click("button.rule[data-rule=rule-engagement]")
        assert tab.locator("#rule-engagement .live-rule").inner_text().strip() == "active"
        tab.keyboard.press("Escape")
        # a changed rule that is being filled
        changed = Program.from_document(
            loads(text.replace("likeCount: count", "likeCount: count, likers: count")).document()
        )
        Registry(changed, sample.tables.store).register(changed)
        run = Run("r", ("engagement.2",), ("main",), 1, "entries", datetime.now(UTC).isoformat())
        assert Progress(sample.tables.store).begin(run, None)
        monkeypatch.setattr("projections.cli.status.rule_ages", lambda *given: {"postById": (0.42, 31.0)})
        source._status = source._services = None
        tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        tab.wait_for_selector("#stage button[data-rule=rule-engagement] .live.pill")
        assert marks.inner_text() == "1 active, 2 filling"
        assert "Needs attention" in tab.locator("#live").inner_text()
        assert tab.locator("#live .steps .now").inner_text() == "entries"
        assert tab.locator("#live .steps .past").all_inner_texts() == ["items"]
        copied = tab.locator("#stage button[data-rule=rule-postById] .live")
        assert copied.inner_text() == "0.4 s"
        said = copied.get_attribute("title")
        assert said == "active; changes were 0.4 s old when the rule had read them (p99: 31 s)"
        shot(tab, "console-filling")
        tab.evaluate("document.getElementById('stage').classList.remove('busy')")
        assert tab.evaluate(CONTRAST) == {}


def test_an_item_shows_each_attribute_with_its_rule_sources_and_differences(
    sample: Sample, watched: Callable[..., Page]
) -> None:
    sample.tables.store.write(Update(META, set={"likeCount": {"N": "7"}, "title": {"S": EVIL}}))
    source = sample.source()
    with served(dict(routes(source))) as server:
        tab = watched(server.url + "item")
        tab.fill("input[name=key]", "PK=POST#p1,SK=METADATA")
        tab.click("text=Explain")
        text = tab.locator("main").inner_text()
        for part in (
            "PostMeta  (postId p1)",
            "3 differences",
            "item: 7, group: 2",
            "count of Like",
            "the ledger has 2 contributions",
        ):
            assert part in text, part
        assert "\\u001b\\u202e" in text
        assert tab.title() != "owned"
        assert "Nothing was written." in text
        shot(tab, "console-item")
        assert tab.evaluate(CONTRAST) == {}
        tab.locator("main a", has_text="USER#ada").first.click()
        assert "contributions of this item" in tab.locator("main").inner_text()
        shot(tab, "console-source")
        status, text, _ = asked(server, "/item?key=%3Cb%3E")
        assert (status, "&lt;b&gt;&#x27; is not a key" in text) == (400, True)


@pytest.mark.deep
def test_nothing_is_written_and_tables_are_not_scanned(sample: Sample) -> None:
    source = sample.source()
    with served(dict(routes(source))) as server:
        for path in ("/", "/api/status", "/item?key=PK%3DPOST%23p1,SK%3DMETADATA"):
            assert asked(server, path)[0] == 200, path
        status, text, _ = asked(server, "/item?key=key:" + "0" * 24)
        assert (status, "<code>projections explain --item</code> reads all tables" in text) == (400, True)
    assert {*source._meter.calls} <= {"GetItem", "BatchGetItem", "Query"}
    assert source._meter.write_units == 0


@pytest.mark.deep
@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_a_stack_shows_its_quarantine_and_receives_none_of_its_messages(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.deliver(place.put("USER#b", "LIKE#1", weight="heavy"))
    name, _ = place.stack()
    given = Options(str(place.file), (), None, None, None, name)
    source = LiveSource(given, None, Sources(place.quarantine, None, None, None))
    found = source.status()
    (quarantine,) = [one for one in found["findings"] if one["subject"] == "quarantine"]
    assert (source.place, quarantine["value"], found["attention"]) == (f"stack {name}", 1, True)
    assert {one["state"] for one in found["rules"].values()} == {"active"}
    (message,) = place.sqs.receive_message(QueueUrl=place.quarantine, AttributeNames=["All"])["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    monkeypatch.setattr(Server, "serve_forever", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    code, said = place.run("console", "--stack", name)
    assert (code, said["place"]) == (0, f"stack {name}")
    assert said["url"].startswith("http://127.0.0.1:")
    with Server(0, {}, failure_answer) as other:
        port = str(other.server_address[1])
        code, _, err = place.say("console", "--stack", name, "--port", port)
        assert (code, f"port {port}: Address already in use. Pass another --port" in err) == (2, True)
