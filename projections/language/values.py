"""Attribute values in wire form: numbers as Decimal, paths into items, plain JSON."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

__all__ = ["CONTEXT", "lookup", "number_text"]

CONTEXT = decimal.Context(prec=38, rounding=decimal.ROUND_HALF_EVEN, Emin=-130, Emax=125)
"""DynamoDB's numbers: 38 significant digits, magnitudes from 1E-130 to 9.99…E+125."""


def number_text(number: Decimal) -> str:
    """A number as DynamoDB gives it back: no exponent, no trailing zeros after the point, no sign on zero."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def lookup(image: Mapping[str, Mapping[str, Any]], path: str) -> Mapping[str, Any] | None:
    """The value at a dotted path, as `address.city` or `tags.0`; None where there is nothing."""
    value = image.get(path)
    if value is not None or "." not in path:
        return value
    first, *rest = path.split(".")
    value = image.get(first)
    for name in rest:
        if value is None:
            return None
        if "M" in value:
            value = value["M"].get(name)
        elif "L" in value and name.isdecimal():
            elements = value["L"]
            value = elements[int(name)] if int(name) < len(elements) else None
        else:
            return None
    return value
