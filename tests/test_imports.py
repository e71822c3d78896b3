"""Importing a part of the library loads that part, and nothing of the command line."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import projections.engine
import projections.stores
from projections.cli.main import COMMANDS

COMMAND_LINE = {"click", "yaml", "pydantic", "greenlet", "localstack_client", "pytest"}
NOT_DEPLOYED = tuple(f"projections.{room}" for room in ("local", "deploy", "inspect", "init", "testing", "dev", "cli"))
AWS = {"boto3", "botocore", "s3transfer", "aws_lambda_powertools", "aws_xray_sdk"}


def loaded(*names: str) -> set[str]:
    """The modules that a new process loads with these."""
    program = f"import json, sys; before = set(sys.modules); import {', '.join(names)}"
    program += "; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def under(package: object) -> Iterator[str]:
    name, path = package.__name__, package.__path__  # type: ignore[attr-defined]
    return (one.name for one in pkgutil.walk_packages(path, name + "."))


def test_the_package_itself_loads_nothing_else() -> None:
    assert loaded("projections") == {"projections"}


def test_the_public_functions_load_what_they_need_when_they_are_called() -> None:
    modules = loaded("projections.api", "projections.aws", "projections.testing")
    assert packages(modules) & (COMMAND_LINE | AWS) == set()
    assert not [name for name in modules if name.startswith(("projections.engine", "projections.operations"))]


def test_the_engine_loads_neither_the_command_line_nor_aws() -> None:
    modules = loaded(*under(projections.engine))
    assert packages(modules) & (COMMAND_LINE | AWS) == set()
    assert not [name for name in modules if name.startswith((*NOT_DEPLOYED, "projections.stores", "projections.aws"))]


def test_compiled_rules_and_the_store_in_memory_load_neither() -> None:
    modules = loaded("projections.language.program", "projections.language.rules", "projections.stores.memory")
    assert packages(modules) & (COMMAND_LINE | AWS) == set()


def test_the_stores_load_botocore_and_nothing_of_the_command_line() -> None:
    assert packages(loaded(*under(projections.stores))) & (COMMAND_LINE | AWS) == {"botocore"}


def test_operations_load_nothing_of_the_command_line() -> None:
    names = ("worker", "audit", "backfill.runner", "verify.verification", "message_redrive", "health")
    modules = loaded("projections.aws.wiring", *(f"projections.operations.{name}" for name in names))
    assert packages(modules) & COMMAND_LINE == set()
    assert not [name for name in modules if name.startswith(NOT_DEPLOYED)]


def test_rule_files_load_no_terminal() -> None:
    assert packages(loaded("projections.language.loader")) & (COMMAND_LINE | AWS) == {"pydantic", "yaml"}


def test_the_pytest_plugin_adds_nothing_to_a_run_that_does_not_use_it() -> None:
    plugin = "projections.testing.plugin"
    assert loaded("pytest", plugin) - loaded("pytest") == {"projections", "projections.testing", plugin}


def test_the_help_of_commands_loads_click_only() -> None:
    modules = loaded("projections.cli.main", *(f"projections.cli.{command}" for command in COMMANDS))
    assert packages(modules) & (COMMAND_LINE | AWS) == {"click"}
