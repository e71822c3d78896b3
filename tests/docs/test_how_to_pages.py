"""docs/how-to: every page is a task. Its rules are checked, its cases played, and its commands run.

A block whose first line is `# NAME`, a file name, is that file. Other YAML is a case under `rules.yaml` as it is there.
Commands on files run here. Commands on a deployment run on MiniStack, where `sam deploy` deploys the page's `rules.yaml`.
Lines of a text block are printed by the commands above it in this order; `…` stands for any lines.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from guide import DOCS, ROOT, apply_to_post, blocks, run_examples, said
from place import Place
from test_operations_page import committed, operation

from tests.yaml_text import yaml_data

sys.path.append(str(ROOT / "tests/deploy"))

from runbook import Block, page_blocks

import projections
from projections.aws.queues import Queue
from projections.cli.main import COMMANDS, main
from projections.deploy.comparison import passes
from projections.deploy.needs import Deployment
from projections.testing.cases import Case
from projections.testing.scenario import Scenario

HOME = DOCS / "how-to"
PAGES = {page.stem: page.read_text() for page in sorted(HOME.glob("*.md")) if page.name != "README.md"}
LIVE = {
    name
    for name, page in PAGES.items()
    if any("--stack " in one.text for one in page_blocks(page) if one.language == "sh")
}
MOST_LINES = 65

FILE = re.compile(r"# ([\w./-]+\.\w+)\n")


def lines_of(block: Block) -> list[str]:
    """Return the commands of a block, each on one line."""
    return block.text.replace("\\\n", " ").splitlines()


@dataclass
class Reader:
    """Somebody who follows a page in a directory. `run` runs a command and returns its exit code and output.

    With `deployed` false, blocks with commands on a deployment are skipped, and what they print.
    """

    place: Path
    run: Callable[[list[str]], tuple[int, str]]
    printed: str | None = ""
    deployed: bool = True

    def follow(self, name: str) -> None:
        for block in page_blocks(PAGES[name]):
            if found := FILE.match(block.text):
                file = self.place / found[1]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text)
                if block.language == "yaml" and "projections:" in block.text:
                    assert said(block.text) == [], "the rules of a page have no findings"
            elif block.language == "yaml":
                rules = projections.load(self.place / "rules.yaml")
                Case(name, 0, yaml_data(block.text)).play(Scenario(rules))
            elif block.language == "sh" and not block.not_run:
                skipped = not self.deployed and "--stack " in block.text
                self.printed = None if skipped else "".join(map(self._command, lines_of(block)))
            elif block.language == "text" and self.printed is not None:
                assert in_order(block.text, self.printed), f"{name} shows\n{block.text}\nprinted is\n{self.printed}"

    def _command(self, line: str) -> str:
        line, _, file = line.partition(" > ")
        code, printed = self.run(shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", line)))
        assert code in (0, 1), f"{line} ends with {code}:\n{printed}"  # 1: the command found something
        if file and not (self.place / file).exists():
            (self.place / file).write_text(printed)
        return printed


def in_order(shown: str, printed: str) -> bool:
    """Whether a text has these parts, which lines with `…` separate, in this order."""
    at = 0
    text = "\n".join(line.rstrip() for line in printed.splitlines())
    for part in re.split(r"^…\n", shown, flags=re.MULTILINE):
        at = text.find(part.rstrip("\n"), at)
        if at < 0:
            return False
    return True


def programs(words: list[str], place: Path) -> tuple[int, str]:
    """Run a program that is neither this package nor a deployment."""
    words = [sys.executable, *words[1:]] if words[0] == "python" else words
    done = subprocess.run(words, cwd=place, text=True, capture_output=True, check=False, timeout=100)
    return done.returncode, done.stdout + done.stderr


LONG = {"test-rules-in-ci"}
"""Pages whose commands take seconds."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.deep] * (name in LONG)) for name in PAGES])
def test_a_page_shows_what_its_commands_print(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(words: list[str]) -> tuple[int, str]:
        if words[0] != "projections":
            shown = BEFORE[name][0] if words[:2] == ["git", "show"] else ""
            return (0, shown) if words[0] in ("sam", "aws", "git") else programs(words, tmp_path)
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        assert isinstance(ended.value.code, int)
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    for file, text in GIVEN.get(name, {}).items():
        (tmp_path / file).write_text(text)
    if name in LIVE:
        (tmp_path / "rules.yaml").write_text(BEFORE[name][0])
    Reader(tmp_path, run, deployed=False).follow(name)


ITEM = {"Item": {"PK": {"S": "POST#p1"}, "SK": {"S": "LIKE#ann"}, "stars": {"S": "5"}}}
SCHEMA = (
    '{"model": {"entity": "post", "version": "1", "service": "blog"}, "attributes": {"postId": {"type": "string"}}, '
    '"indexes": {"byId": {"pk": {"field": "pk", "composite": ["postId"]}, "sk": {"field": "sk", "composite": []}}}}'
)
GIVEN = {"replay-a-failure": {"item.json": json.dumps(ITEM)}, "use-electrodb-tables": {"schema.json": SCHEMA}}
"""Files that other programs write, by page."""


@pytest.mark.deep
@pytest.mark.usefixtures("posts")
def test_the_examples_about_own_writes_print_what_the_page_shows() -> None:
    examples = [block for block in blocks(PAGES["read-your-own-write"]) if block.language == "python"]
    apply_to_post(examples[0])
    assert run_examples(examples, {}, "read-your-own-write.md") > 6


def test_the_consumer_of_messages_accepts_each_published_value_once() -> None:
    """Also of records that come twice, and where the application writes to the item, overwrites the value or removes it."""
    rules, program = (block.text for block in page_blocks(PAGES["send-messages"]) if FILE.match(block.text))
    consumer: dict[str, Any] = {}
    exec(program, consumer)
    scenario, records = Scenario(projections.loads(rules)), list[Mapping[str, Any]]()
    deliver = scenario.store.on_record
    scenario.store.on_record = lambda table, record: (records.append(record), deliver(table, record))
    post, like = {"PK": "POST#p1", "SK": "METADATA"}, {"PK": "POST#p1", "SK": "LIKE#ann"}
    changes = [{"put": post}, {"put": like}, {"update": post | {"title": "A"}}, {"update": post | {"likeCount": 9}}]
    for step in [*changes, {"put": post}, {"delete": like}, {"delete": post}, {"put": post}]:
        scenario.do(step).settle()
    (table,) = Deployment("", scenario.program, notify=("likes",)).tables
    passed = [record for record in records if any(passes(each, record) for each in table.messages)]
    seen: dict[str, str] = {}
    accepted = [each for record in passed for each in [record] * 2 if consumer["is_new"](each, seen)]
    assert [each["dynamodb"]["NewImage"]["likeCount"]["N"] for each in accepted] == ["0", "1", "0"]
    assert (len(records), len(passed)) == (14, 8)


# --- pages on a deployment


def likes(place: Place) -> None:
    """The rules are applied. A post has likes of Ann and Ben."""
    place.activate()
    place.deliver(
        place.put("POST#p1", "METADATA", title="Notes"),
        place.put("POST#p1", "LIKE#ann", stars=5),
        place.put("POST#p1", "LIKE#ben", stars=4),
    )


def unheard(place: Place) -> None:
    """Also one of Cem that no function heard of."""
    likes(place)
    place.put("POST#p1", "LIKE#cem", stars=3)


def older(place: Place) -> None:
    place.put("POST#p1", "METADATA", title="Notes", likeCount=7)
    place.put("POST#p1", "LIKE#ann", stars=5)
    place.put("POST#p1", "LIKE#ben", stars=4)


def rejected(place: Place) -> None:
    likes(place)
    place.deliver(place.put("POST#p1", "LIKE#cem", stars="five"))


def changed(place: Place) -> None:
    """The rules were changed and applied."""
    likes(place)
    place.deploy(STARS)
    place.apply()
    place.deliver(place.put("POST#p1", "LIKE#cem", stars=3))
    assert place.item("POST#p1", "METADATA")["stars"] == 12


PLAIN = """# rules.yaml
table: { key: [PK, SK], indexes: { GSI1: [GSI1PK, GSI1SK] } }
entities:
  Post: { key: { PK: "POST#{postId}", SK: METADATA } }
  Like: { key: { PK: "POST#{postId}", SK: "LIKE#{userId}" } }
projections:
  likes: { from: Like, aggregate: { into: Post, set: { likeCount: count } } }
"""
STARS = PLAIN.replace("likeCount: count", "likeCount: count, stars: sum(stars)")

BEFORE: dict[str, tuple[str, Callable[[Place], None]]] = {
    "add-a-rule": (PLAIN, likes),
    "change-a-rule": (
        PLAIN + "  stars: { from: Like, aggregate: { into: Post, set: { starCount: sum(stars) } } }\n",
        likes,
    ),
    "handle-a-bad-record": (STARS, rejected),
    "repair-wrong-values": (PLAIN, unheard),
    "replace-a-handler": (PLAIN.replace("from: Like", "from: Like, hold: true"), older),
    "roll-back": (PLAIN, changed),
    "deploy-to-stages": (PLAIN, likes),
    "erase-a-person": (PLAIN, likes),
    "load-in-bulk": (PLAIN, unheard),
    "remove-this-package": (PLAIN, likes),
}
"""The deployed rules and what happened before somebody reads a page."""


@pytest.mark.deep
@pytest.mark.parametrize("name", sorted(LIVE))
def test_a_page_about_a_deployment_shows_what_its_commands_print(
    name: str, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, happened = BEFORE[name]
    receive = Queue.receive  # an empty queue of the emulator stays empty
    monkeypatch.setattr(Queue, "receive", lambda queue, seconds, *, wait=2: receive(queue, seconds, wait=0))
    stack, outputs = place.stack()
    place.environ["QUARANTINE_QUEUE_URL"] = outputs["QuarantineQueueUrl"]
    for item in place.dynamodb.scan(TableName=place.ledger)["Items"]:  # a new ledger
        place.dynamodb.delete_item(TableName=place.ledger, Key={"pk": item["pk"], "sk": item["sk"]})
    place.deploy(rules)
    happened(place)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RULES")
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "rules.yaml").write_text(rules)

    def run(words: list[str]) -> tuple[int, str]:
        if words[:2] == ["sam", "deploy"]:
            place.deploy((tmp_path / "rules.yaml").read_text())
            monkeypatch.delenv("RULES")
        if words[:2] == ["git", "show"]:
            return 0, rules
        if words[:2] == ["git", "checkout"]:
            (tmp_path / "rules.yaml").write_text(PLAIN)
        if words[0] in ("sam", "aws", "git"):
            return 0, ""
        if words[0] != "projections":
            return programs(words, tmp_path)
        words = [stack if word.startswith("shop") else word for word in words]
        asks = ["--yes"] if "--yes" not in words else []
        more = {"verify": ["--patience", "0"], "apply": asks, "rollback": asks}.get(words[1], [])
        code, out, err = place.say(*words[1:], *more)
        return code, out + err

    Reader(tmp_path, run).follow(name)
    place.rules = (tmp_path / "rules.yaml").read_text()
    assert place.right()


def test_what_happened_before_is_known_for_each_page_about_a_deployment() -> None:
    assert BEFORE.keys() == LIVE


# --- every page


@pytest.mark.parametrize("name", PAGES)
def test_commands_have_the_options_that_a_page_gives_them(name: str) -> None:
    for block in page_blocks(PAGES[name]):
        for line in lines_of(block) if block.language == "sh" else []:
            line = re.sub(r" > \S+$", "", re.sub(r"^([A-Z_]+=\S+ )+", "", line))
            program, *words = shlex.split(line.partition(" | ")[0])
            if program == "projections":
                assert words[0] in COMMANDS
                command = importlib.import_module(f"projections.cli.{words[0]}").command
                command.make_context(words[0], words[1:], help_option_names=["-h", "--help"])
            elif program == "aws":
                _known_to_aws(words)
            elif program == "sam":
                given = {word.partition("=")[0] for word in words if re.match(r"[A-Z]\w+=", word)}
                assert given <= committed()["Parameters"].keys() | {
                    name for name in given if name.startswith(("Existing", "EventBus"))
                }
                assert words[0] in ("build", "deploy", "delete", "local")
            else:
                assert program in ("cp", "git", "grep", "python", "sed"), line


def _known_to_aws(words: list[str]) -> None:
    """Fail if the AWS command line has no such operation or parameters."""
    service, name, *rest = words
    service = {"s3api": "s3"}.get(service, service)
    known = {re.sub(r"(?<!^)(?=[A-Z])", "-", one).lower() for one in operation(service, name).input_shape.members}
    given = {re.sub(r"^--(no-)?", "", word) for word in rest if word.startswith("--")}
    assert given - {"query", "output"} <= {one.replace("u-u-i-d", "uuid") for one in known}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short_and_has_commands(name: str) -> None:
    blocks = page_blocks(PAGES[name])
    assert len(PAGES[name].splitlines()) <= MOST_LINES
    assert any(block.language in ("sh", "python") for block in blocks)


def test_the_index_lists_every_page_by_its_title() -> None:
    index = (HOME / "README.md").read_text()
    titles = {name: page.splitlines()[0].removeprefix("# ") for name, page in PAGES.items()}
    assert [name for name, title in titles.items() if f"[{title}]({name}.md)" not in index] == []
    assert set(re.findall(r"\(([\w-]+)\.md\)", index)) == titles.keys()


def test_lines_stand_in_their_order() -> None:
    assert in_order("b\n…\nd\n", "a\nb \nc\nd\n")
    assert not in_order("d\n…\nb\n", "a\nb\nc\nd\n")
    assert not in_order("b\nd\n", "a\nb\nc\nd\n")
