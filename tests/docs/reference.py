"""The pages in docs/ that are generated: findings.md from the kinds of findings, cli.md from the help of commands,
testing.md from the docstrings of the fixture and case files.

python tests/docs/reference.py      # write them
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import click
from guide import DOCS, ROOT, added
from ledger_page import ledger_page
from metrics_page import metrics_page
from rules_reference_page import rules_reference_page

from projections.cli.main import COMMANDS, GROUPS, cli
from projections.deploy import comparison as template_kinds
from projections.deploy.agreement import disagreements
from projections.deploy.cloudformation import Document, template_of
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.language import loader
from projections.language.findings.kinds import KINDS, Finding, Kind
from projections.language.program import Program
from projections.language.review import review_text
from projections.local import event_files
from projections.local.steps import STEP
from projections.testing.cases import CASE, FILE
from projections.testing.plugin import pytest_addoption
from projections.testing.scenario import Scenario
from tests.yaml_text import yaml_data

__all__ = ["EXAMPLES", "PAGES", "command_of", "findings_of_example", "help_blocks"]

INTRODUCTION = """\
# Findings

<!-- Written by tests/docs/reference.py from tests/docs/findings.yaml. -->

`projections check` reports mistakes in a rule file and findings about valid rules; `projections check --template` reports
where a template does not fit the rules. Each message has place, reason and way out; this page explains the codes.

- **error**: the rules cannot be used, or a rule can never work.
- **warning**: the rules will probably fail for some items, or under load.
- **note**: often intended, but worth knowing.

The exit code is 1 if there are errors or warnings; `--fail-on` changes that. To accept a warning or a note about
rules, add a comment on the same line or on the line above it:

```yaml
GSI1PK: BOARD # check: ignore hot-partition
```
"""


EXAMPLES = {**KINDS, **template_kinds.KINDS}
"""Every kind that has an example."""


@cache
def findings_of_example(code: str) -> tuple[Finding, ...]:
    """Return the findings of the example of a kind."""
    if code in template_kinds.KINDS:
        template = _merged(_social()[1], yaml_data(_texts()["templates"][code]["example"]))
        return tuple(disagreements(Document("template.yaml", template), _social()[0]))
    assert code in _texts()["rules"], f"add summary, why and example of {code} to tests/docs/findings.yaml"
    example = _texts()["rules"][code]["example"]
    data = yaml_data(example)
    return review_text(example if "table" in data else added(_texts()["base"], data)).findings


@cache
def _texts() -> Mapping[str, Any]:
    texts: Mapping[str, Any] = yaml_data((ROOT / "tests/docs/findings.yaml").read_text(encoding="utf-8"))
    return texts


@cache
def _social() -> tuple[Deployment, Mapping[str, Any]]:
    rules = loader.load(ROOT / "projections/rules/social.yaml")
    deployment = Deployment("rules.yaml", Program.from_document(rules.document()), existing=False)
    return deployment, template_of(sam_template(deployment)).data


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    nested = {
        name: _merged(one[name], value)
        for name, value in other.items()
        if isinstance(value, Mapping) and isinstance(one.get(name), Mapping)
    }
    return {**one, **other, **nested}


def findings_page() -> str:
    """Return docs/findings.md."""
    for code in EXAMPLES:
        if not findings_of_example(code):
            raise SystemExit(f"the example of {code} has no finding: correct it, or add a Remark of this kind")
    lines = [INTRODUCTION, "## Findings about rules\n"]
    lines += [_section(kind, _texts()["rules"][code]) for code, kind in KINDS.items()]
    lines += ["## Findings about templates\n"]
    lines += [_section(kind, _texts()["templates"][code]) for code, kind in template_kinds.KINDS.items()]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(kind: Kind, texts: Mapping[str, str]) -> str:
    severities = " or ".join(kind.severities)
    return f"### {kind.code}\n\n" + _filled(f"{severities.capitalize()}. {texts['summary']} {texts['why']}") + "\n"


COMMAND_LINE = """\
# Command line

<!-- Written by tests/docs/reference.py from the help of the commands. -->

`projections COMMAND --help` prints the text on this page. Exit codes of all commands:

- 0: success.
- 1: the command found something, such as findings, drift or quarantined records. The help of each command lists the cases.
- 2: wrong usage, an invalid file, or a failed request. The message names the reason.
- 70: an internal error. Please report it; `PROJECTIONS_DEBUG=1` prints the traceback.
"""


def command_of(name: str) -> click.Command:
    """Return the command of a name."""
    found = cli.get_command(_program(), name)
    assert found is not None
    return found


def _program() -> click.Context:
    """Return the program's context, from which its commands inherit the names of the help option.

    click keeps the help option that a command was first asked for: with other names, later help would differ.
    """
    return cli.make_context("projections", [], resilient_parsing=True)


def help_blocks(command: click.Command) -> list[tuple[bool, str]]:
    """Return the paragraphs of a command's help: whether it is printed as written, and the text."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    return [(part.startswith("\b\n"), part.removeprefix("\b\n")) for part in parts]


def cli_page() -> str:
    """Return docs/cli.md. Options and paragraphs that several commands have are at its end."""
    lines = [COMMAND_LINE]
    for title, group in GROUPS.items():
        lines.append(f"- {title}: {' · '.join(f'[{name}](#{name})' for name in group)}")
    options = Counter(option for name in COMMANDS for option in _options(name))
    repeated = {option for option, times in options.items() if times > 1}
    for name in COMMANDS:
        lines += ["", *_command(name, repeated)]
    lines += [
        "",
        "## Options of several commands",
        "",
        *(f"- `{names}`: {text}" for names, text in options if (names, text) in repeated),
    ]
    return "\n".join(lines) + "\n"


def _options(name: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a command with their help."""
    command = command_of(name)
    context = click.Context(command, info_name=name, parent=_program())
    for parameter in command.params:
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
            names, text = (" ".join(part.split()) for part in record)
            yield names, text


def _command(name: str, repeated: set[tuple[str, str]]) -> Iterator[str]:
    command = command_of(name)
    context = click.Context(command, info_name=name, parent=_program())
    yield f"## {name}\n"
    yield _fenced("text", f"{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n")
    for as_written, text in help_blocks(command):
        if as_written:
            heading, _, lines = text.rpartition(":\n")
            fenced = _fenced("sh" if heading else "yaml", f"{textwrap.dedent(lines)}\n")
            yield fenced if heading.startswith("Example") or not heading else f"{heading}:\n\n{fenced}"
        else:
            yield _filled(_marked(" ".join(text.split()))) + "\n"
    options = list(_options(name))
    yield from (f"- `{names}`: {text}" for names, text in options if (names, text) not in repeated)
    if others := [f"`{re.split(r'[ ,]', names)[0]}`" for names, text in options if (names, text) in repeated]:
        yield _filled(f"- [others](#options-of-several-commands): {', '.join(others)}")


def _marked(text: str) -> str:
    """Return prose of help as Markdown: options as code, pages as links."""
    code = re.compile(r"`[^`]*`|--[a-z-]+(?: (?:[A-Z]+\b|\d+|\S+=\w+))?")
    text = code.sub(lambda found: found[0] if found[0].startswith("`") else f"`{found[0]}`", text)
    return text.replace("docs/findings.md", "[findings.md](findings.md)")


def _filled(text: str) -> str:
    return textwrap.fill(text, 125, break_long_words=False, break_on_hyphens=False)


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}```\n"


TESTING = """\
# Tests of rules

<!-- Written by tests/docs/reference.py from the docstrings of projections/testing and projections/local/event_files.py. -->

With the extra `test`, pytest has the fixture `projections`, and runs files named `*.projections.yaml`. In both, the
application writes items, the functions process them in memory until nothing changes, and the test compares the items.
Nothing is mocked: the handler is the one that is deployed.

[Case files](#case-files) · [The fixture](#the-fixture) · [Options of pytest](#options-of-pytest) ·
[Event files](#event-files)

The examples on this page use these rules:

```yaml
table: { key: [PK, SK], ttl: ttl }
entities:
  Post: { key: { PK: "POST#{postId}", SK: METADATA } }
  Like: { key: { PK: "POST#{postId}", SK: "LIKE#{userId}" }, expires: true }
projections:
  likes: { from: Like, expired: keep, aggregate: { into: Post, set: { likeCount: count } } }
  stars: { from: Like, expired: retract, aggregate: { into: Post, set: { stars: sum(stars) } } }
queries:
  likers: { find: Like, by: [postId], order: userId, attributes: [userId] }
```
"""

FIXTURE = """\
## The fixture

```python
def test_a_like_counts(projections):
    projections.given({"PK": "POST#p1", "SK": "METADATA", "title": "Notes"})
    projections.put({"PK": "POST#p1", "SK": "LIKE#bob"})
    projections.then({"PK": "POST#p1", "SK": "METADATA", "likeCount": 1}, partial=True)
```

The fixture is a `Scenario`. Without pytest: `projections.testing.Scenario(projections.load("rules.yaml"))`. Items are
plain values: text, numbers, `Decimal`, `bytes`, lists, mappings, and sets of Python. Items as DynamoDB has them
(`{"PK": {"S": "POST#p1"}}`) are accepted, too. Results have the values of boto3's resources: all numbers are
`Decimal`, sets are sets, binary is `bytes`, NULL is `None`. So what `item()` returns can be put again unchanged.
A key is a mapping, or a list of its parts. Wrong use raises
`UsageError`. Each example begins with empty tables.
"""

CASES = """\
## Case files

A file `*.projections.yaml` has cases as data. Each is a test:

```yml
rules: rules.yaml
cases:
  - about: a like counts once, however often it is written
    given: [{ PK: "POST#p1", SK: METADATA, title: Notes }]
    when:
      - put: { PK: "POST#p1", SK: "LIKE#bob", stars: 3 }
      - update: { PK: "POST#p1", SK: "LIKE#bob", stars: 4 }
        remove: [comment]
    then: [{ PK: "POST#p1", SK: METADATA, title: Notes, likeCount: 1, stars: 4 }]
    asks: [{ query: likers, with: { postId: p1 }, gives: [{ userId: bob }] }]
  - about: an expired like stays counted, without its stars
    given: [{ PK: "POST#p1", SK: METADATA }, { PK: "POST#p1", SK: "LIKE#bob", stars: 3 }]
    when: [{ expire: ["POST#p1", "LIKE#bob"] }]
    partial: true
    then: [{ PK: "POST#p1", SK: METADATA, likeCount: 1, stars: 0 }]
    gone: [["POST#p1", "LIKE#bob"]]
  - about: stars that are not a number are rejected, and the like counts
    given: [{ PK: "POST#p1", SK: METADATA }]
    when: [{ put: { PK: "POST#p1", SK: "LIKE#bob", stars: five } }]
    partial: true
    then: [{ PK: "POST#p1", SK: METADATA, likeCount: 1 }]
    quarantined: [{ rule: stars }]
```

With several tables, `given`, `then` and `gone` are mappings from tables to lists. Sets are `{ SS: [a, b] }` and `{ NS:
[1, 2] }`, binary is `{ $binary: base64 }`. Numbers keep all their digits, dates are text.
`--json` prints values in the same form, but a number that is neither whole nor exact as a double is
`{ $number: "0.3333…" }`, with all its digits: case files read this, too.

The functions run after `given`, and after the last step: they receive the records of all steps together, as in one
batch. Where the order of writes and functions matters, as for rules with `once`, write the step `settle` between.
"""

PYTEST = """\
## Options of pytest

The rules under test are the first of: `@pytest.mark.projections(rules="FILE")` or `rules: FILE` in a case file, both
relative to the test's file; `projections_rules = FILE` in pytest's configuration;
`rules.yaml` in the root directory.
"""

EVENTS = """\
## Event files

`replay`, `explain` and `cost` read events from files, and `replay --save FILE` writes their content as one Lambda event:
"""


def testing_page() -> str:
    """Return docs/testing.md."""
    lines = [TESTING, CASES, "In the file:\n", *_names(FILE), "", "In a case:\n", *_names(CASE), ""]
    lines += ["In a step of `when`:\n", *_names(STEP), "", FIXTURE]
    for name, method in vars(Scenario).items():
        function = method.fget if isinstance(method, property) else method
        if not name.startswith("_") and ">>>" in (getattr(function, "__doc__", None) or ""):
            lines += _method(name, function, isinstance(method, property))
    lines += [PYTEST, *_pytest_options(), ""]
    _, table, forms = str(event_files.__doc__).strip().split("\n\n")
    return "\n".join([*lines, EVENTS, table, "", _filled(" ".join(forms.split())), ""])


def _method(name: str, function: Any, is_property: bool) -> Iterator[str]:
    text, _, example = inspect.cleandoc(function.__doc__).partition("\n\n>>> ")
    signature = "" if is_property else _signature(function)
    yield f"### {name}\n"
    yield f"`projections.{name}{signature}`\n"
    for part in text.split("\n\n"):
        yield _filled(" ".join(part.split())) + "\n"
    yield f"```pycon\n>>> {example}\n```\n"


def _signature(function: Any) -> str:
    """Return the parameters of a method with their defaults, without annotations."""
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=parameters[1:], return_annotation=inspect.Signature.empty))


def _names(meanings: Mapping[str, str]) -> Iterator[str]:
    return (f"- `{name}`: {meaning}" for name, meaning in meanings.items())


class _Options:
    """What a plugin adds to pytest's options and configuration."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def addini(self, name: str, meaning: str, **settings: Any) -> None:
        self.found.append((f"{name} = …", meaning))


def _pytest_options() -> Iterator[str]:
    options: Any = _Options()
    pytest_addoption(options)
    return _names(dict(options.found))


PAGES = {
    "findings.md": findings_page,
    "cli.md": cli_page,
    "testing.md": testing_page,
    "metrics.md": metrics_page,
    "ledger.md": ledger_page,
    "rules-reference.md": rules_reference_page,
}
"""Pages in docs/, and what they must be."""


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
