"""Generated modules under test: loaded from their text, on tables of DynamoDB Local or moto; in TypeScript, run by node."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
from boto3.dynamodb.types import TypeDeserializer
from emulators import ROOT, Unavailable, node_packages, unavailable

from projections.aws.live_tables import create_table
from projections.engine.store import Image, Schema

CREDENTIALS = {"region_name": "eu-central-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}


def module_of(text: str) -> ModuleType:
    """Return a generated module."""
    module = ModuleType(f"generated_{uuid.uuid4().hex}")
    sys.modules[module.__name__] = module  # for dataclasses
    try:
        exec(compile(text, "access.py", "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module


def table_of(url: str | None, schema: Schema, images: Sequence[Image]) -> Any:
    """Return a table with these items in wire form. Without an address, moto must be active."""
    dynamodb = boto3.resource("dynamodb", endpoint_url=url, **CREDENTIALS)
    name = f"app-{uuid.uuid4().hex[:8]}"
    create_table(dynamodb.meta.client, name, schema, stream=False)
    table = dynamodb.Table(name)
    read = TypeDeserializer().deserialize
    with table.batch_writer() as batch:
        for image in images:
            batch.put_item(Item={attribute: read(value) for attribute, value in image.items()})
    return table


def without(schema: Schema, index: str) -> Schema:
    """Return a schema without an index."""
    return replace(schema, indexes={name: keys for name, keys in schema.indexes.items() if name != index})


def simple(value: Any) -> Any:
    """Return a value of boto3 as JSON has it."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, Mapping):
        return {name: simple(one) for name, one in value.items()}
    if isinstance(value, list):
        return [simple(one) for one in value]
    return value


# TypeScript

OPTIONS = {
    "strict": True,
    "noImplicitReturns": True,
    "noUnusedLocals": True,
    "noUnusedParameters": True,
    "noPropertyAccessFromIndexSignature": True,
    "noUncheckedIndexedAccess": True,
    "exactOptionalPropertyTypes": True,
    "erasableSyntaxOnly": True,
    "verbatimModuleSyntax": True,
    "target": "es2022",
    "module": "nodenext",
    "types": ["node"],
    "skipLibCheck": True,
}


def compiled(directory: Path, modules: Mapping[str, str]) -> None:
    """Compile modules, by their names, into a directory. Fails on any message of the compiler."""
    try:
        packages = node_packages("typescript")
    except Unavailable as error:
        unavailable(error)
    (directory / "node_modules").symlink_to(packages / "node_modules")
    (directory / "package.json").write_text('{"type": "module"}')
    (directory / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS}))
    (directory / "driver.mjs").write_bytes((ROOT / "tests/access/client/driver.mjs").read_bytes())
    for name, text in modules.items():
        (directory / f"{name}.ts").write_text(text, encoding="utf-8")
    run = subprocess.run(["node_modules/.bin/tsc", "-p", "."], cwd=directory, text=True, capture_output=True)
    assert (run.stdout, run.returncode) == ("", 0)


def called(directory: Path, calls: Sequence[Mapping[str, Any]], endpoint: str = "") -> list[Any]:
    """Return what functions return: `value`, `items` with `pages` if a call has a `limit`, or `error`."""
    special = lambda value: {"$number": str(value)} if isinstance(value, Decimal) else {"$set": sorted(value)}  # noqa: E731
    text = json.dumps({"endpoint": endpoint, "calls": calls}, default=special)
    (directory / "calls.json").write_text(text, encoding="utf-8")
    command = ["node", "driver.mjs", "calls.json"]
    run = subprocess.run(command, cwd=directory, text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
    answers: list[Any] = json.loads(run.stdout)
    return answers


def camel(name: str) -> str:
    """Return a name of Python as the modules have it."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)
