"""The rule files in the package."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SHIPPED", "bundled"]

SHIPPED = Path(__file__).parents[1] / "rules"


def bundled(name: str) -> Path | None:
    """Return the path of the bundled rule file of this name, None if there is none."""
    path = SHIPPED / f"{name}.yaml"
    return path if path.name == f"{name}.yaml" and path.is_file() else None
