"""The files of table exports: directories as S3 has them, which manifests list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from projections.errors import UsageError


def files_of(path: str) -> list[str]:
    """Return the data files of the exports in a directory, those of a full export first; any other path as it is.

    Raises UsageError if the directory has no export in the format DYNAMODB_JSON, several full exports of one table, or lacks
    a file that a manifest lists.
    """
    directory = Path(path)
    if path == "-" or not directory.is_dir():
        return [path]
    full: dict[str, Path] = {}
    files: list[str] = []
    changes: list[str] = []
    for manifest in sorted(directory.rglob("manifest-files.json")):
        summary = _json(manifest.with_name("manifest-summary.json"))
        form = summary.get("outputFormat", "DYNAMODB_JSON")
        if form != "DYNAMODB_JSON":
            raise UsageError(
                f"{manifest.parent}: is in the format {form}; export the table in the format DYNAMODB_JSON"
            )
        if summary.get("exportType", "FULL_EXPORT") != "FULL_EXPORT":
            changes += _data_files(manifest)
            continue
        other = full.setdefault(str(summary.get("tableArn")), manifest.parent)
        if other != manifest.parent:
            raise UsageError(
                f"{path}: has two full exports of one table, {other.name} and {manifest.parent.name}; pass the directory of "
                "one of them"
            )
        files += _data_files(manifest)
    files = [*files, *changes] or sorted(map(str, directory.rglob("data/*.json.gz")))
    if not files:
        raise UsageError(
            f"{path}: is a directory without manifest-files.json and data/*.json.gz, the files of an export"
        )
    return files


def _data_files(manifest: Path) -> Iterator[str]:
    """Yield the data files that a manifest lists: of a full export beside it, of an incremental one a directory higher."""
    for number, line in enumerate(manifest.read_text().splitlines(), 1):
        try:
            name = PurePosixPath(json.loads(line)["dataFileS3Key"]).name
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{manifest}:{number}: not the manifest of an export: it has no dataFileS3Key") from None
        places = [directory / "data" / name for directory in (manifest.parent, manifest.parent.parent)]
        present = next((place for place in places if place.is_file()), None)
        if present is None:
            raise UsageError(f"{manifest}:{number}: {places[0]} is missing; copy the data files of the export, too")
        yield str(present)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        summary = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}
