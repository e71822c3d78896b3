"""Which attributes of an item a rule reads."""

from __future__ import annotations

from typing import Any

from projections.engine.store import Image, Value
from projections.language.syntax import root

__all__ = ["Traced"]


class Traced(dict[str, Value]):
    """An image that remembers the names of the attributes that were read."""

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(root(name))
        return super().get(name, default)
