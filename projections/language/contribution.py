"""Contributions: what one source item adds to its targets, under rules that the ledger records.

They are plain JSON, because they are compared, stored and subtracted more often than computed:
`{rule: {target: {"n": 1, "=total": "12.5", "+": {member: digest}}}}`.

- `n`: the number of elements of the source that contribute (1 without `each`).
- `=m`: the amount of measure m: for `count` with a condition and for `sum`; for `avg` the sum. `rank`: see `language.ranks`.
- `#m`: the number of values of an `avg` or a `counts`.
- `%`: values, for `distinct`, `counts` and `values`: slot and encoded value → how many elements have it.
- `+`: members, for `min`, `max`, `top`, `latest` and claims: slot and encoded value → a digest of the
  attributes that the member holds. With `each`, a space and the element's position follow, because elements of one source
  can have the same value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from projections.errors import BadInput
from projections.language.keys import Image
from projections.language.values import EXACT, Value, canonical, item_size, number_text

DIGITS_BEFORE, DIGITS_AFTER = 18, 10
"""The digits of an amount of `sum` and `avg` before and after the decimal point.

Ten billion such amounts add up to at most 38 digits, the limit of DynamoDB's numbers, so that the amount of one item cannot
make that of another item fail.
"""

ENTRY_BYTES = 190_000
"""The size limit of all contributions of one source item, as `contributed_bytes` measures them.

A ledger entry holds at most 409,600 bytes: the contributions, once more as many targets in `recent`, the item's key and
the entry's other attributes.
"""

ELEMENTS, MOST_ELEMENTS = 100, 10_000
"""How many elements of one item an `each` takes without `most`, and the greatest value of `most`.

Each element may change a target of its own: without a limit, one write of an item could cause thousands.
"""

MOST_LEVELS = 32
"""The levels of lists and maps that DynamoDB allows in an item, the value at the end included."""

MEMBER_BYTES = 300_000
"""The size limit of the attributes that a member holds. The member's item of 409,600 bytes also holds its keys."""

Contributed: TypeAlias = dict[str, Any]
"""The contribution of a source to one target under one rule: `{"n": 1, "=total": "12.5", "+": {…}}`."""

Contributions: TypeAlias = dict[str, dict[str, Contributed]]
"""Rule → encoded target key → contribution."""


class Evaluated(NamedTuple):
    """All current contributions of a source item.

    `payloads` has the attributes that members hold, by (rule, target, member). `problems` has the rules that could not be
    evaluated, with the reasons; they contribute nothing.
    """

    contributions: Contributions
    payloads: Mapping[tuple[str, str, str], Image] = MappingProxyType({})
    problems: Sequence[tuple[str, str]] = ()


NOTHING = Evaluated({})


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
_encode_ascii = json.JSONEncoder(sort_keys=True, check_circular=False).encode
_quoted = json.encoder.encode_basestring
_COUNTED_ONCE = {"n": 1}


def canonical_text(contributions: Contributions) -> str:
    """Return JSON with sorted names: one text for equal contributions, so that a condition of DynamoDB can compare them.

    The encoder is made once, because making it takes longer than encoding one contribution; most are plain counts.
    """
    if not contributions:
        return "{}"
    rules = []
    for rule, targets in sorted(contributions.items()):
        held = [f"{_quoted(target)}:{_contributed_text(targets[target])}" for target in sorted(targets)]
        rules.append(f"{_quoted(rule)}:{{{','.join(held)}}}")
    return f"{{{','.join(rules)}}}"


def _contributed_text(contributed: Contributed) -> str:
    return '{"n":1}' if contributed == _COUNTED_ONCE else _encode(contributed)


def contributed_bytes(rule: str, targets: Mapping[str, Contributed]) -> int:
    """Return the bytes that a rule's contributions take in a ledger entry: their canonical text in UTF-8.

    Each target counts with the rule's name once more, because `recent` holds both for each target of a retraction.
    """
    name = len(rule.encode())
    text = ",".join([f"{_quoted(target)}:{_contributed_text(held)}" for target, held in targets.items()])
    return len(text.encode()) + name * len(targets) + name + 6


def bytes_at_most(targets: Mapping[str, Contributed], rule: str) -> int:
    """Return an upper bound of `contributed_bytes`, cheap to compute.

    A character takes at most 6 bytes in JSON (an escaped control character). Beside the key a target has at most its
    name and `{"n":` with a number; each further amount counts as long as the longest.
    """
    total = 0
    for target, held in targets.items():
        total += 6 * len(target) + 40
        if len(held) > 1:
            total += 6 * sum(map(len, held)) + 80 * len(held)
            for members in (held.get("+"), held.get("%")):
                if members:
                    total += 6 * sum(map(len, members)) + 24 * len(members)
    return total + (len(rule) + 1) * len(targets) + len(rule) + 6


def digest(payload: Image) -> str:
    """Return 16 hexadecimal digits that change if the attributes of a member change."""
    return _digest(_payload_text(payload)) if payload else ""


def member_digest(payload: Image) -> str:
    """Return `digest` of attributes that are to be written. Raises BadInput if they exceed `MEMBER_BYTES`, or their levels
    those of a map.
    """
    if not payload:
        return ""
    check_levels(payload, 1)
    text = _payload_text(payload)
    if (
        len(text) > MEMBER_BYTES and (size := item_size(payload)) > MEMBER_BYTES
    ):  # the text is at least as long as the size
        raise BadInput(
            f"the attributes to keep have {size:,} bytes, the limit is {MEMBER_BYTES:,}; list fewer attributes in the rule, "
            f"or exclude such items with a `where`"
        )
    return _digest(text)


def check_levels(attributes: Image, above: int) -> None:
    """Raise BadInput if values would have more than `MOST_LEVELS` inside so many lists and maps of the rule."""
    for name, value in attributes.items():
        if ("M" in value or "L" in value) and (levels := levels_of(value)) > MOST_LEVELS - above:
            raise BadInput(
                f'"{name}" has {levels} levels of lists and maps, and {MOST_LEVELS - above} are possible where the '
                f"rule keeps it (DynamoDB allows {MOST_LEVELS} in all); exclude such items with a `where`, "
                "or leave out the attribute"
            )


def levels_of(value: Value) -> int:
    """Return how many levels a value has: 1 for a text, 2 for a list of texts."""
    ((kind, content),) = value.items()
    if kind not in ("M", "L"):
        return 1
    inside: Iterable[Value] = content.values() if kind == "M" else content
    return 1 + max(map(levels_of, inside), default=0)


def _payload_text(payload: Image) -> str:
    return _encode_ascii({name: canonical(value) for name, value in payload.items()})


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def check_amount(measure: str, text: str) -> None:
    """Check that a number of `sum` or `avg`, as `number_text` gives it, is within the limits. Raises BadInput."""
    before, _, after = text.lstrip("-").partition(".")
    if len(before) <= DIGITS_BEFORE and len(after) <= DIGITS_AFTER:
        return
    found = f"{len(before)} digits before" if len(before) > DIGITS_BEFORE else f"{len(after)} digits after"
    raise BadInput(
        f'"{measure}" is {text[:40]}{"…" if len(text) > 40 else ""}, which has {found} the decimal point; sum and avg '
        f"take at most {DIGITS_BEFORE} digits before and {DIGITS_AFTER} after it: correct the item, or exclude such values "
        f"with a `where` on the measure"
    )


def merge(into: Contributed, more: Contributed) -> None:
    """Add the contribution of another element of the same source to the same target.

    Call `check_merged` when all elements are added: it checks the limits of the sums.
    """
    for slot, amount in more.items():
        if slot == "+":
            into.setdefault("+", {}).update(amount)
        elif slot == "%":
            counted = into.setdefault("%", {})
            for value, number in amount.items():
                counted[value] = counted.get(value, 0) + number
        elif isinstance(amount, int):
            into[slot] = into.get(slot, 0) + amount
        else:  # exact: an item has far fewer elements than ten billion
            into[slot] = number_text(EXACT.add(Decimal(into.get(slot, "0")), Decimal(amount)))


def check_merged(contributed: Contributed) -> None:
    """Check the sums over the elements of one item that `merge` added. Raises BadInput."""
    for slot, amount in contributed.items():
        if isinstance(amount, str):
            check_amount(slot[1:], amount)


def without(contributions: Contributions, rules: Container[str]) -> Contributions:
    """Return contributions without those of some rules."""
    return {rule: held for rule, held in contributions.items() if rule not in rules}
