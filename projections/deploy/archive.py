"""The functions' package as an archive, for deployments without SAM. It has what `sam build` puts into its directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from projections.deploy.package import MAKEFILE
from projections.errors import Misconfigured, UsageError
from projections.language.loader import load

__all__ = ["write_archive"]

_TIME = (1980, 1, 1, 0, 0, 0)
"""The modification time of all members, so that archives of the same files have the same bytes."""


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
        packed = Path(directory) / "functions.zip"
        _pack(package, packed)
        try:
            shutil.copyfile(packed, archive)
        except OSError as error:
            raise UsageError(f"{archive} cannot be written: {error.strerror or error}") from None
        return packed.stat().st_size, remarks


def _build(rules: Path, package: Path) -> str:
    # Without the variables that a make above this one passes on, and without colours, which `cdk synth` asks for.
    others = ("MAKE", "MFLAGS", "FORCE_COLOR")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    done = subprocess.run(
        [
            *("make", "--silent", "-f", str(MAKEFILE), "build-StreamFunction"),
            f"build_python={sys.executable}",
        ],
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


def _pack(directory: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            member = zipfile.ZipInfo(path.relative_to(directory).as_posix(), _TIME)
            member.external_attr = 0o100644 << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(member, path.read_bytes())
