"""The files of a new project, of the example or of a proposal. Reads files of this package only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from projections.deploy.needs import Deployment
from projections.deploy.package import wheel
from projections.deploy.template import sam_template
from projections.init.events import event_file, record
from projections.init.inference.proposal import Proposal
from projections.init.invent import Invented, changed, invent
from projections.init.models.file import model_file
from projections.init.models.model import Model
from projections.init.rule_file import rule_file
from projections.init.scenarios import items_file, test_file
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.schema import json_schema
from projections.language.values import Image

__all__ = ["PROPOSED", "Existing", "File", "example", "modelled", "proposed"]

RULES = "rules.yaml"
SCHEMA = "rules.schema.json"

_MODELINE = f"# yaml-language-server: $schema={SCHEMA}\n"
"""The first line of the rule file, by which editors find the schema."""

PROPOSED = (
    *(
        RULES,
        SCHEMA,
        "template.yaml",
        "samconfig.toml",
        "Makefile",
        "pyproject.toml",
        "requirements.txt",
        "README.md",
        ".gitignore",
    ),
    *("tests/items.json", "tests/test_rules.py", "events/items.json", "events/later-changes.json"),
)
"""The files of a project for a table."""

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Existing:
    """Existing tables, each with the ARN of its stream if that is known and has both images."""

    stream_arns: Mapping[str, str | None]


File = str | bytes
"""The content of a file."""


def example(project: str) -> dict[str, File]:
    """Return path → text of each file of a project with the example."""
    rules = _read("example/rules.yaml")
    files = _common(
        project,
        rules,
        "customers and orders, an example. Replace it, and the files in `events` and `tests`, with your own",
        None,
    )
    files["tests/orders.projections.yaml"] = _read("example/orders.projections.yaml")
    return {**files, **{f"events/{name}": _read(f"example/{name}") for name in ("items.json", "later-changes.json")}}


def proposed(project: str, proposal: Proposal, existing: Existing) -> dict[str, File]:
    """Return path → text of each file of a project for an existing table."""
    return _of_proposals(project, [proposal], rule_file(proposal), f"the table {proposal.table.name}", existing)


def modelled(project: str, model: Model) -> dict[str, File]:
    """Return path → text of each file of a project for the tables of a data model."""
    what = f"the table{'s' * (len(model.tables) > 1)} {', '.join(model.tables)}"
    existing = Existing(dict.fromkeys(model.tables)) if model.existing else None
    return _of_proposals(project, model.proposals, model_file(model), what, existing)


def _of_proposals(
    project: str, proposals: Sequence[Proposal], rules: str, what: str, existing: Existing | None
) -> dict[str, File]:
    program = Program.from_document(loads(rules, RULES).canonical())
    invented = [(proposal, invent(proposal, program)) for proposal in proposals]
    items = [one for _, some in invented for one in some]
    files = _common(project, rules, what, existing)
    files["tests/items.json"] = items_file(items)
    files["tests/test_rules.py"] = test_file(proposals)
    appear, later = _invented_records(invented)
    return {**files, "events/items.json": appear, "events/later-changes.json": later}


def _common(project: str, rules: str, what: str, existing: Existing | None) -> dict[str, File]:
    program = Program.from_document(loads(rules, RULES).canonical())
    deployment = Deployment(RULES, program, existing is not None)
    flags = "--existing-table " if existing else ""
    then = "; then backfill and verify" if existing else ""
    values = {"project": project, "stack": _stack(project), "what": what, "flags": flags, "then": then}
    return {
        RULES: _MODELINE + rules,
        SCHEMA: json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n",
        "template.yaml": sam_template(deployment),
        "samconfig.toml": _filled(_read("files/samconfig.toml"), values) + _overrides(existing, deployment),
        "Makefile": _filled(_read("files/Makefile"), values),
        "pyproject.toml": _read("files/pyproject.toml"),
        **_requirement(),
        "README.md": _filled(_read("files/README.md"), values),
        ".gitignore": _read("files/gitignore"),
    }


def _requirement() -> dict[str, File]:
    """Return `requirements.txt`, which installs this version again, for tests: by number, or from where it was installed
    (https://packaging.python.org/en/latest/specifications/direct-url/).

    An address of this machine means nothing on another one, so a wheel of a version from here becomes part of the project.
    """
    package = distribution("dynamodb-projections")
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    name = f"{package.name}[test]"
    if not origin:
        return {"requirements.txt": f"{name}=={package.version}\n"}
    url, vcs = origin["url"], origin.get("vcs_info")
    if not url.startswith("file:"):
        return {"requirements.txt": f"{name} @ {vcs['vcs']}+{url}@{vcs['commit_id']}\n" if vcs else f"{name} @ {url}\n"}
    file, content = wheel(package)
    text = (
        "# The version that wrote this project. Install it in this directory. To update: replace the wheel and this line.\n"
        f"./vendor/{file}[test]\n"
    )
    return {"requirements.txt": text, f"vendor/{file}": content}


def _overrides(existing: Existing | None, deployment: Deployment) -> str:
    if existing is None:
        return ""
    given = " ".join(
        f"ExistingTableName{needs.suffix}={name} ExistingStreamArn{needs.suffix}={arn or 'arn:…'}"
        for needs, (name, arn) in zip(deployment.tables, existing.stream_arns.items(), strict=True)
    )
    line = f'parameter_overrides = "{given}"\n'
    if None not in existing.stream_arns.values():
        return line
    return f"# Enable the stream of each table with new and old images, and insert its ARN (LatestStreamArn):\n# {line}"


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"<([a-z]+)>", lambda found: values.get(found[1], found[0]), text)


def _stack(project: str) -> str:
    """Return a name that CloudFormation accepts."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", project).strip("-")
    return (name if name[:1].isalpha() else f"projections-{name}".rstrip("-"))[:70]


# Events


def _invented_records(invented: Sequence[tuple[Proposal, Sequence[Invented]]]) -> tuple[str, str]:
    """Return the insertion of all items; and a change of one, if possible of an attribute that a rule reads, with the
    deletion of the last.
    """
    every = [(proposal, one) for proposal, some in invented for one in some]

    def made(number: int, proposal: Proposal, old: Image | None, new: Image | None) -> dict[str, Any]:
        return record(proposal.table.name, proposal.table.key_names, number, old, new)

    appear = [made(number, proposal, None, one.item) for number, (proposal, one) in enumerate(every)]
    changes = sorted(
        ((*change, proposal) for proposal, one in every[:-1] for change in _changes(proposal, one)),
        key=lambda change: change[0],
    )
    later = [
        made(len(every), proposal, one.item, {**one.item, name: changed(one.item[name])})
        for _, one, name, proposal in changes[:1]
    ]
    later += [made(len(every) + len(later), proposal, one.item, None) for proposal, one in every[-1:]]
    return event_file(appear), event_file(later)


def _changes(proposal: Proposal, one: Invented) -> Iterator[tuple[int, Invented, str]]:
    """Yield (rank, item, attribute) for attributes that can change without a change of the key or entity."""
    (entity,) = [each for each in proposal.entities if each.name == one.entity]
    fixed = {*proposal.table.key_names, *proposal.table.index_names, *one.variables}
    fixed |= {name for relation in proposal.relations for name in relation.binding.values()}
    embedded = {
        name
        for rule in proposal.rules
        if rule.kind == "embed" and not rule.doubt and rule.body["from"] == one.entity
        for name in rule.body["embed"]["attributes"].values()
    }
    for attribute in entity.attributes:
        if attribute.name in fixed or attribute.name not in one.item or attribute.type not in ("S", "N"):
            continue
        if entity.kind is None or attribute.name != entity.kind[0]:
            yield (0 if attribute.name in embedded else 1 if attribute.form == "text" else 2), one, attribute.name
