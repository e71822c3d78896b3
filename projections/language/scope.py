"""What the names in a rule stand for, on one source item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from projections.errors import BadInput
from projections.language.keys import Image, ItemKey, Value, key_text
from projections.language.values import lookup

if TYPE_CHECKING:
    from projections.language.program import Entity

__all__ = ["Item", "Resolve", "resolver"]

Resolve: TypeAlias = Callable[[str], Value | None]


class Item:
    """An item recognised as one of an entity: its key, its image and the variables its key holds."""

    __slots__ = ("entity", "image", "key", "variables")

    def __init__(self, entity: Entity, key: ItemKey, variables: Mapping[str, str], image: Image) -> None:
        self.entity = entity
        self.key = key
        self.variables = variables
        self.image = image


def resolver(item: Item, bound: Mapping[str, Value] | None = None) -> Resolve:
    """Names to values, strongest first: bound by the rule (`bind`, `each`), key variables, attributes (dotted paths).

    The resolver raises BadInput where a key variable and an attribute of the same name differ: one of them lies, and no
    rule can tell which.
    """
    variables, image = item.variables, item.image

    def resolve(name: str) -> Value | None:
        if bound is not None and name.split(".", 1)[0] in bound:
            return lookup(bound, name)
        text = variables.get(name)
        if text is None:
            return lookup(image, name)
        value = image.get(name)
        if value is None:
            return {"N": text} if name in item.entity.numeric else {"S": text}
        kind, content = next(iter(value.items()))
        if kind not in ("S", "N") or (content != text and (kind != "N" or key_text("N", content) != text)):
            raise BadInput(
                f'the key says {name} = "{text}", the attribute "{name}" says otherwise; '
                f"make them agree or rename one of them"
            )
        return value

    return resolve
