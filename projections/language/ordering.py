"""An encoding of values as text whose order is the order of the values: numbers by value, then strings by UTF-8 bytes.

The least, the greatest and the newest three values are then a query with a limit. No encoding is the prefix of another,
so that more text may follow (a source key, to break ties).

Source for numbers: the sign, exponent, mantissa scheme of order-preserving key encodings (as in the FoundationDB tuple
layer), here in decimal because DynamoDB's numbers are decimal: 38 digits, 1E-130 to 9.99…E+125.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from projections.errors import BadInput
from projections.language.values import number_text

LONGEST_TEXT = 512
"""The size limit of an encoded value: a sort key of 1024 bytes also holds a source key."""

_COMPLEMENT = str.maketrans("0123456789", "9876543210")
_ESCAPES = {code: '"' + chr(0x23 + code) for code in range(0x23)}


def encode_order(value: Mapping[str, Any]) -> str:
    """Return the encoding of a string or number in wire form. Raises BadInput for other types and too long text."""
    if "N" in value:
        return _number(Decimal(value["N"]))
    if "S" in value:
        # "!" ends a text: it sorts before every character, because those up to '"' are written as '"' and another one.
        text = "s" + str(value["S"]).translate(_ESCAPES) + "!"
        if len(text.encode()) > LONGEST_TEXT:
            raise BadInput(
                f"a text of {len(value['S'])} characters is too long to be ordered by: its encoding exceeds "
                f"{LONGEST_TEXT} bytes; order by something shorter, such as a time"
            )
        return text
    kind = next(iter(value), "nothing")
    raise BadInput(f"a value of type {kind} has no order; use a string or a number")


def decode_order(order: str) -> dict[str, str]:
    """Return the value that `encode_order` encoded, in wire form. Text after the encoding is ignored."""
    if order.startswith("s"):
        text, rest = "", iter(order[1:].partition("!")[0])
        for character in rest:
            text += chr(ord(next(rest)) - 0x23) if character == '"' else character
        return {"S": text}
    if order.startswith("n1"):
        return {"N": "0"}
    negative = order.startswith("n0")
    mantissa = order[5:].partition("~" if negative else "!")[0]
    magnitude = 500 - int(order[2:5]) if negative else int(order[2:5]) - 500
    digits = mantissa.translate(_COMPLEMENT) if negative else mantissa
    number = Decimal((int(negative), tuple(map(int, digits)), magnitude - len(digits)))
    return {"N": number_text(number)}


def _number(number: Decimal) -> str:
    if not number:
        return "n1"
    sign, digits, exponent = number.as_tuple()
    mantissa = "".join(map(str, digits)).lstrip("0")
    assert isinstance(exponent, int)
    magnitude = exponent + len(mantissa)
    mantissa = mantissa.rstrip("0")
    if sign:
        return f"n0{500 - magnitude:03d}{mantissa.translate(_COMPLEMENT)}~"
    return f"n2{500 + magnitude:03d}{mantissa}!"
