"""What one source item contributes to the targets of the rules that keep a ledger.

Contributions are plain JSON from the start, because they are compared, stored and subtracted far more often than they are
computed: `{rule: {target: {"n": 1, "=total": "12.5", "+": {member: digest}}}}`.

- `n`: how many elements of the source contribute (1 without `each`).
- `=m`: the amount of measure m: for `count` with a condition and for `sum`; for `avg` the sum.
- `#m`: how many values an `avg` is over.
- `+`: members, for `min`, `max`, `top`, `latest` and claims: slot and encoded value → a digest of what the member holds.
  With `each`, a space and the element's position follow, where several elements of one source may have the same value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from projections.errors import BadInput
from projections.language.keys import Image
from projections.language.values import EXACT, canonical, number_text

__all__ = ["Contributed", "Contributions", "Evaluated", "canonical_text", "digest", "merge"]

Contributed: TypeAlias = dict[str, Any]
"""What a source gives to one target under one rule: `{"n": 1, "=total": "12.5", "+": {…}}`."""

Contributions: TypeAlias = dict[str, dict[str, Contributed]]
"""Rule → encoded target key → what is contributed."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """All that a source item contributes now.

    `payloads` holds the attributes that members carry, by (rule, target, member). `problems` names the rules that could
    not be evaluated, with the reason; they contribute nothing.
    """

    contributions: Contributions
    payloads: Mapping[tuple[str, str, str], Image] = field(default_factory=dict)
    problems: Sequence[tuple[str, str]] = ()


NOTHING = Evaluated({})


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
_encode_ascii = json.JSONEncoder(sort_keys=True, check_circular=False).encode


def canonical_text(contributions: Contributions) -> str:
    """One text for equal contributions, so that DynamoDB can compare them in a condition."""
    return _encode(contributions) if contributions else "{}"


def digest(payload: Image) -> str:
    """16 hexadecimal digits that change when the attributes a member carries change."""
    if not payload:
        return ""
    text = _encode_ascii({name: canonical(value) for name, value in payload.items()})
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def merge(into: Contributed, more: Contributed) -> None:
    """Adds what another element of the same source contributes to the same target."""
    for slot, amount in more.items():
        if slot == "+":
            into.setdefault("+", {}).update(amount)
        elif isinstance(amount, int):
            into[slot] = into.get(slot, 0) + amount
        else:
            try:
                into[slot] = number_text(EXACT.add(Decimal(into.get(slot, "0")), Decimal(amount)))
            except ArithmeticError:
                raise BadInput(f"the sum of {slot[1:]} over one item needs more than DynamoDB's 38 digits") from None
