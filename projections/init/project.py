"""The files of a new project, of the example or of a proposal, and how they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from importlib.metadata import distribution
from pathlib import Path

from projections.deploy.needs import Deployment
from projections.deploy.package import wheel
from projections.deploy.sam_template import sam_template
from projections.errors import UsageError
from projections.init.data_model import Model
from projections.init.model_reading import model_file
from projections.init.proposal import Proposal
from projections.init.rule_file import rule_file
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.schema import json_schema

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
    "tests/test_rules.py",
)
"""The files of a project for a table."""

_HERE = Path(__file__).parent


Existing = Mapping[str, str | None]
"""Existing tables, each with the ARN of its stream if that is known and has both images."""

File = str | bytes
"""The content of a file."""


def project_with_example(project: str) -> dict[str, File]:
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


def project_of_table(project: str, proposal: Proposal, existing: Existing) -> dict[str, File]:
    """Return path → text of each file of a project for an existing table."""
    return _with_tests(_common(project, rule_file(proposal), f"the table {proposal.table.name}", existing))


def project_of_model(project: str, model: Model) -> dict[str, File]:
    """Return path → text of each file of a project for the tables of a data model."""
    what = f"the table{'s' * (len(model.tables) > 1)} {', '.join(model.tables)}"
    existing: Existing | None = dict.fromkeys(model.tables) if model.existing else None
    return _with_tests(_common(project, model_file(model), what, existing))


def _with_tests(files: dict[str, File]) -> dict[str, File]:
    return {**files, "tests/test_rules.py": _read("files/test_rules.txt")}


def _common(project: str, rules: str, what: str, existing: Existing | None) -> dict[str, File]:
    program = Program.from_document(loads(rules, RULES).document())
    deployment = Deployment(RULES, program, existing is not None)
    flags = "--existing-table " if existing else ""
    values = {"project": project, "stack": _stack(project), "what": what, "flags": flags}
    return {
        RULES: _MODELINE + rules,
        SCHEMA: json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n",
        "template.yaml": sam_template(deployment),
        "samconfig.toml": _fill(_read("files/samconfig.toml"), values) + _overrides(existing, deployment),
        "Makefile": _fill(_read("files/Makefile"), values),
        "pyproject.toml": _read("files/pyproject.toml"),
        **_requirement(),
        "README.md": _fill(_read("files/README.md"), values),
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
    parameters = " ".join(
        f"ExistingTableName{needs.suffix}={name} ExistingStreamArn{needs.suffix}={arn or 'arn:…'}"
        for needs, (name, arn) in zip(deployment.tables, existing.items(), strict=True)
    )
    line = f'parameter_overrides = "{parameters}"\n'
    if None not in existing.values():
        return line
    return f"# Enable the stream of each table with new and old images, and insert its ARN (LatestStreamArn):\n# {line}"


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"<([a-z]+)>", lambda placeholder: values.get(placeholder[1], placeholder[0]), text)


def _stack(project: str) -> str:
    """Return a name that CloudFormation accepts."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", project).strip("-")
    return (name if name[:1].isalpha() else f"projections-{name}".rstrip("-"))[:70]


def refuse_existing(directory: Path, names: Collection[str], *, force: bool = False) -> None:
    """Raise UsageError if some of these files exist and `force` is not set, or a file is where a directory is needed."""
    for place in (directory, *(directory / name for name in {name.split("/")[0] for name in names if "/" in name})):
        if place.exists() and not place.is_dir():
            raise UsageError(f"{place}: a file has the name of a directory that is needed. Name another directory")
    there = sorted(name for name in names if (directory / name).exists() or (directory / name).is_symlink())
    if there and not force:
        others = f" and {len(there) - 5} more" if len(there) > 5 else ""
        raise UsageError(
            f"{directory}: {', '.join(there[:5])}{others} exist{'s' * (len(there) == 1)} already, so nothing was written. "
            "Name another directory, or pass --force to overwrite"
        )


def write(directory: Path, files: Mapping[str, str | bytes], *, force: bool = False) -> None:
    """Write all files. Raises UsageError without writing anything if one exists and `force` is not set."""
    refuse_existing(directory, files, force=force)
    try:
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UsageError(f"{error.filename or directory}: cannot be written: {error.strerror}") from None
