"""What examining a subject shows."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import blake2b

from projections.engine.store import Image, ItemKey
from projections.language.entity import Item
from projections.language.program import Program
from projections.operations.verify import showing
from projections.operations.verify.drift import Drift

__all__ = ["Finding", "image_digest", "occupied", "recognised", "state_text"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of examining a subject: nothing is wrong if there are no `drifts`.

    `state` has all that was compared, `image` is a digest of the whole item: if both are equal in two findings, the item has
    not changed between them. `reached` and `known` are versions: the one that is shown, and the newest one. An item that
    reaches the version known before was late, and not wrong. `push` names the push that a child may be waiting for.
    """

    state: str = ""
    drifts: tuple[Drift, ...] = ()
    image: str = ""
    reached: str = ""
    known: str = ""
    push: str = ""


def occupied(common: Drift, item: Image) -> Drift:
    """Return the drift for an item of another kind under the key of an item that a rule would create."""
    return replace(common, kind="occupied", actual=showing.item(item))


def image_digest(item: Image | None) -> str:
    """Return a digest of a whole item."""
    text = "" if item is None else json.dumps(item, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def state_text(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)


def recognised(program: Program, key: ItemKey, image: Image | None) -> Item | None:
    """Return the item of an image; None if there is none, or if it is of no entity."""
    return program.recognise(key, image) if image is not None else None
