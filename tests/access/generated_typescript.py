"""Generated modules in TypeScript under test: compiled as strictly as the compiler can, and called in node."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT, Unavailable, node_packages

OPTIONS = {
    "strict": True,
    "noImplicitReturns": True,
    "noUnusedLocals": True,
    "noUnusedParameters": True,
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
        if os.environ.get("REQUIRE_EMULATORS"):
            pytest.fail(str(error))
        pytest.skip(str(error))
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
    text = json.dumps({"endpoint": endpoint, "calls": calls}, default=_special)
    (directory / "calls.json").write_text(text, encoding="utf-8")
    command = ["node", "driver.mjs", "calls.json"]
    run = subprocess.run(command, cwd=directory, text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
    answers: list[Any] = json.loads(run.stdout)
    return answers


def _special(value: Any) -> Any:
    return {"$number": str(value)} if isinstance(value, Decimal) else {"$set": sorted(value)}


def camel(name: str) -> str:
    """Return a name of Python as the modules have it."""
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)
