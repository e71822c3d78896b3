"""The guides in docs/: their headings and blocks, in order.

    python tests/docs/guide.py      # write into tests/docs/examples.md what `check` says of the mistakes it shows

A block of YAML with `entities:` and a table is a rule file. One without a table is added to the rule file above it. One with
`given`, `when` or `then` is a case under the rules above it. A block of text is what `check` says of the rules above it.
"""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

import projections
from tests.yaml_text import yaml_data

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LATER = "# later"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, line in the page, and the heading it stands under."""

    language: str
    text: str
    line: int
    heading: str


@dataclass
class Example:
    """A rule file as text, the case below it and what is said of it, as far as the page has them."""

    rules: str
    line: int
    heading: str
    before: Example | None = None
    """The example whose tables these rules are put in force on."""
    case: dict[str, Any] | None = None
    findings: list[str] | None = None
    fences: dict[str, int] = field(default_factory=dict)


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    heading, language, start, lines = "", "", 0, list[str]()
    for number, line in enumerate(page.splitlines(), start=1):
        if line.startswith("```"):
            if start:
                yield Block(language, "".join(f"{one}\n" for one in lines), start, heading)
                start = 0
            else:
                language, start, lines = line[3:].strip(), number, []
        elif start:
            lines.append(line)
        elif found := re.match(r"#+ (.*)", line):
            heading = found[1]


def headings(page: str) -> list[tuple[int, str]]:
    """(level, text) of each heading."""
    outside = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    return [(len(found[1]), found[2]) for found in re.finditer(r"^(#+) (.*)$", outside, re.MULTILINE)]


def examples(page: str) -> Iterator[Example]:
    """The examples of a page, in order."""
    found: list[Example] = []
    base = ""
    for block in blocks(page):
        if block.language == "yaml":
            data = yaml_data(block.text)
            if data.keys() & {"table", "tables"}:
                base = block.text
                before = found[-1] if block.text.startswith(LATER) else None
                found.append(Example(base, block.line, block.heading, before))
            elif data.keys() & {"entities", "projections", "queries", "writes"}:
                found.append(Example(added(base, data), block.line, block.heading))
            else:
                assert found[-1].case is None, f"line {block.line}: a second case for one rule file"
                found[-1].case = data
        elif block.language == "text":
            found[-1].findings = block.text.splitlines()
            found[-1].fences["text"] = block.line
    return iter(found)


def added(base: str, data: dict[str, Any]) -> str:
    """Return a rule file with more entities and rules, as JSON."""
    document = dict(yaml_data(base))
    for part, more in data.items():
        document[part] = {**document.get(part, {}), **more}
    return json.dumps(document, indent=1)


def run_examples(examples: Iterable[Block], names: dict[str, object], page: str) -> int:
    """Run Python examples one after the other in one namespace, as a reader types them. Return how many lines ran."""
    runner = doctest.DocTestRunner(verbose=False)
    printed: list[str] = []
    for block in examples:
        test = doctest.DocTestParser().get_doctest(block.text, names, block.heading, page, block.line)
        runner.run(test, out=printed.append, clear_globs=False)
        names.update(test.globs)
    assert not printed, "".join(printed)
    return runner.summarize(verbose=False).attempted


def apply_to_post(example: Block, **attributes: str) -> tuple[projections.Store, projections.RuleSet]:
    """Apply the rules that an example loads to the table `posts`, which has a post. Return the store and the rules."""
    rules = projections.loads(re.sub(r"^\.\.\. ", "", example.text, flags=re.MULTILINE).split('"""')[1])
    boto3.resource("dynamodb").Table("posts").put_item(Item={"PK": "POST#p1", "SK": "METADATA", **attributes})
    store = projections.aws.store(rules, {"main": "posts"}, "posts-ledger")
    projections.apply(store, rules)
    return store, rules


def said(rules: str) -> list[str]:
    """What `check` says of a rule file, notes left out: each from the place on, without file, line and column."""
    from projections.language.review import review_text

    return [str(one).split(": ", 1)[1] for one in review_text(rules).findings if one.severity != "note"]


def main() -> None:
    path = ROOT / "tests/docs/examples.md"
    lines = path.read_text().splitlines()
    for example in reversed(list(examples(path.read_text()))):
        if example.findings is not None:
            start = example.fences["text"]
            lines[start : start + len(example.findings)] = said(example.rules)
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
