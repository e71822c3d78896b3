"""The files of this repository as a user would get them: those that git lists, without what is ignored."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["copy_sources"]

ROOT = Path(__file__).resolve().parent.parent


def copy_sources(directory: Path, but: tuple[str, ...] = ()) -> None:
    """Copy the files into a directory, except those below the folders in `but`."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(but):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, directory / name)
