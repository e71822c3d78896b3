"""The functions' package: a directory for `sam build` (`python -m projections.deploy.package RULES DIRECTORY`), or an
archive for deployments without SAM; and the wheel of this version.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path

import projections
from projections.errors import Misconfigured, ProjectionsError, UsageError
from projections.language.loader import load

MAKEFILE = Path(__file__).with_name("build.mk")
"""The makefile whose targets `sam build` calls."""

_LIBRARY = Path(projections.__file__).parent
_WITH_LIBRARY = Path(__file__).with_name("handlers")
HANDLERS = _WITH_LIBRARY if _WITH_LIBRARY.is_dir() else _LIBRARY.parent / "handlers"
"""The entry points: beside this file in a wheel (see `force-include` in pyproject.toml), else in the source tree."""

_NOT_DEPLOYED = shutil.ignore_patterns("__pycache__")

_DEPLOYED = {"__init__.py", "errors.py", "language", "engine", "stores", "operations", "aws"}
"""The parts of the library that the functions need."""


def package(rules: str | Path, directory: str | Path) -> None:
    """Copy library, handlers and compiled rules into a directory. Raises RulesError with all mistakes of the rules."""
    document = load(rules).document()
    target = Path(directory)
    shutil.copytree(_LIBRARY, target / "projections", ignore=_library_only, dirs_exist_ok=True)
    shutil.copytree(HANDLERS, target / "handlers", ignore=_NOT_DEPLOYED, dirs_exist_ok=True)
    (target / "rules.json").write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def _library_only(directory: str, names: list[str]) -> set[str]:
    """Return the names in a directory that are not copied."""
    others = set(names) - _DEPLOYED if Path(directory) == _LIBRARY else set()
    return {*_NOT_DEPLOYED(directory, names), *others}


_METADATA = ("METADATA", "WHEEL", "entry_points.txt")


def wheel(installed: Distribution) -> tuple[str, bytes]:
    """Return the name and the content of a wheel of this version, from its installed files or its source tree.

    A directory from which it was installed may be gone, and building it would need its build backend. Two wheels of the same
    files have the same bytes.
    """
    stem = f"{installed.name.replace('-', '_')}-{installed.version}"
    information = f"{stem}.dist-info"
    contents = {f"{information}/{name}": text.encode() for name in _METADATA if (text := installed.read_text(name))}
    licences = [path for path in installed.files or () if path.parts[:2] == (information, "licenses")]
    contents |= {path.as_posix(): path.read_binary() for path in licences}
    for root, place in ((_LIBRARY, "projections"), (HANDLERS, "projections/deploy/handlers")):
        for path in root.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                contents[f"{place}/{path.relative_to(root).as_posix()}"] = path.read_bytes()
    record = f"{information}/RECORD"
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in sorted(contents.items())]
    contents[record] = "".join(f"{line}\n" for line in [*lines, f"{record},,"]).encode()
    return f"{stem}-py3-none-any.whl", _zip(contents)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def write_archive(rules: str | Path, archive: str | Path) -> tuple[int, str]:
    """Write the archive, and return its size in bytes and the remarks of the build.

    Raises RulesError with all mistakes of the rules, UsageError without make or for a file that cannot be written, and
    Misconfigured if the dependencies cannot be installed.
    """
    load(rules)  # its mistakes are reported as those of all commands are
    if shutil.which("make") is None:
        raise UsageError("The package is built with make, which is not on PATH. Install it")
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory) / "package"
        package.mkdir()
        remarks = _build(Path(rules).resolve(), package)
        files = {path.relative_to(package).as_posix(): path for path in package.rglob("*") if path.is_file()}
        packed = _zip({name: path.read_bytes() for name, path in files.items()})
    try:
        return Path(archive).write_bytes(packed), remarks
    except OSError as error:
        raise UsageError(f"{archive} cannot be written: {error.strerror or error}") from None


def _build(rules: Path, package: Path) -> str:
    # Without the variables that a make above this one passes on, and without colours, which `cdk synth` asks for.
    others = ("MAKE", "MFLAGS", "FORCE_COLOR")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    done = subprocess.run(
        ["make", "--silent", "-f", str(MAKEFILE), "build-StreamFunction", f"build_python={sys.executable}"],
        env={**environment, "NO_COLOR": "1", "RULES": str(rules), "ARTIFACTS_DIR": str(package), "TEMPLATE": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Misconfigured(f"the package could not be built:\n{done.stdout.strip()[-2000:]}")
    return done.stdout.strip()


def _zip(contents: Mapping[str, bytes]) -> bytes:
    """Return an archive of files by their names. Archives of the same files have the same bytes."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.external_attr = 0o100644 << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, content)
    return written.getvalue()


if __name__ == "__main__":
    try:
        package(*sys.argv[1:])
    except ProjectionsError as error:
        sys.exit(str(error))
