"""Files into a directory: all of them, or none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from projections.errors import UsageError

__all__ = ["refuse_existing", "write"]


def refuse_existing(directory: Path, names: Collection[str], *, force: bool = False) -> None:
    """Raises UsageError if files of these names are there already and `force` is not said, or no directory can be there."""
    for place in (directory, *(directory / name for name in {name.split("/")[0] for name in names if "/" in name})):
        if place.exists() and not place.is_dir():
            raise UsageError(f"{place}: a file stands where a directory is needed; name another directory")
    there = sorted(name for name in names if (directory / name).exists() or (directory / name).is_symlink())
    if there and not force:
        more = f" and {len(there) - 5} more" if len(there) > 5 else ""
        raise UsageError(
            f"{directory}: {', '.join(there[:5])}{more} {'is' if len(there) == 1 else 'are'} there already, and nothing was "
            "written. Name another directory, or replace them with --force"
        )


def write(directory: Path, files: Mapping[str, str], *, force: bool = False) -> None:
    """Writes all files. Raises UsageError, having written nothing, if one is there already and `force` is not said."""
    refuse_existing(directory, files, force=force)
    try:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename or directory}: cannot be written: {error.strerror}") from None
