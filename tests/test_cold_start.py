"""What a function does before its first answer, beside one that writes one item: counted, so that no noise is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.cold import OURS, PLAIN, run, surroundings

# Reports what was loaded, and which directories were listed.
_WATCHED = """
import json, sys
noted = {"os.listdir": []}
def note(event, arguments):
    if event in noted:
        noted[event].append(str(arguments[-1]))
sys.addaudithook(note)
before = set(sys.modules)
{program}
classes = {
    f"{cls.__module__}.{cls.__qualname__}"
    for name, module in list(sys.modules.items())
    if name.partition(".")[0] in ("projections", "handlers")
    for cls in vars(module).values()
    if isinstance(cls, type) and cls.__module__ == name and hasattr(cls, "__dataclass_fields__")
}
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "dataclasses": sorted(classes),
    "directories": noted["os.listdir"],
}))
"""

NEVER = (
    "aws_xray_sdk",
    "boto3",
    "click",
    "greenlet",
    "localstack_client",
    "pydantic",
    "yaml",
    "s3transfer",
    "projections.engine.refresh",
    "projections.language.findings",
    "projections.language.loader",
    "projections.language.models",
    "projections.operations.audit",
    "projections.operations.backfill",
    "projections.operations.redaction",
    "projections.operations.message_redrive",
    "projections.operations.verify",
    "projections.operations.worker",
    "projections.stores.memory",
    "projections.aws.queues",
    "projections.aws.streams",
    "projections.aws.live_tables",
    *(f"projections.{room}" for room in ("local", "deploy", "inspect", "init", "testing", "dev", "cli")),
)
"""What the first record does without, with all below it."""


@pytest.fixture(scope="module")
def counted() -> Iterator[dict[str, dict[str, Any]]]:
    with surroundings() as environment:
        yield {name: json.loads(run(text, environment, _WATCHED)) for name, text in (("ours", OURS), ("plain", PLAIN))}


def test_the_first_record_needs_no_tools_no_other_operation_and_no_boto3(counted: dict[str, dict[str, Any]]) -> None:
    loaded = counted["ours"]["modules"]
    assert [name for name in loaded if any(name == never or name.startswith(never + ".") for never in NEVER)] == []


def test_few_modules_are_loaded(counted: dict[str, dict[str, Any]]) -> None:
    """A module costs a third of a millisecond, a dataclass as much as two. Powertools loads its logger and its metrics."""
    modules = counted["ours"]["modules"]
    assert len([name for name in modules if name.partition(".")[0] in ("projections", "handlers")]) <= 79
    assert len(modules) <= len(counted["plain"]["modules"]) + 80


def test_services_that_nobody_asked_for_are_not_looked_at(counted: dict[str, dict[str, Any]]) -> None:
    """botocore lists the directories of all four hundred, twice: see `projections.aws.clients`."""
    assert len(counted["plain"]["directories"]) > 400
    assert len(counted["ours"]["directories"]) < 100
