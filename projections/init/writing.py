"""Write the files of a project."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from projections.errors import UsageError

__all__ = ["refuse_existing", "write"]


def refuse_existing(directory: Path, names: Collection[str], *, force: bool = False) -> None:
    """Raise UsageError if some of these files exist and `force` is not set, or a file is where a directory is needed."""
    for place in (directory, *(directory / name for name in {name.split("/")[0] for name in names if "/" in name})):
        if place.exists() and not place.is_dir():
            raise UsageError(f"{place}: a file has the name of a directory that is needed. Name another directory")
    there = sorted(name for name in names if (directory / name).exists() or (directory / name).is_symlink())
    if there and not force:
        more = f" and {len(there) - 5} more" if len(there) > 5 else ""
        raise UsageError(
            f"{directory}: {', '.join(there[:5])}{more} exist{'s' * (len(there) == 1)} already, so nothing was written. "
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
