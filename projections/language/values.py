"""Attribute values in wire form: numbers as Decimal, paths into items, plain JSON, equality, sizes in bytes, order."""

from __future__ import annotations

import base64
import decimal
import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Set
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

from projections.errors import BadInput
from projections.language.syntax import LanguageError, steps

Value: TypeAlias = Mapping[str, Any]
"""One attribute value, such as `{"S": "text"}` or `{"N": "1.5"}`; binary as base64 text."""

Image: TypeAlias = Mapping[str, Value]
"""An item, or some of its attributes."""

Resolver: TypeAlias = Callable[[str], Value | None]
"""Returns the value of a variable or dotted path; None if it is missing."""


class Resolve(Protocol):
    """A resolver that also returns what is stored.

    An attribute of type NULL is missing. Patterns pass `stored`, and get the NULL: their `exists` and `null` match it.
    """

    def __call__(self, name: str, stored: bool = False, /) -> Value | None: ...


CONTEXT = decimal.Context(prec=38, rounding=decimal.ROUND_HALF_EVEN, Emin=-130, Emax=125)
"""DynamoDB's numbers: 38 significant digits, magnitudes from 1E-130 to 9.99…E+125."""

EXACT = decimal.Context(
    prec=38, Emin=-130, Emax=125, traps=[decimal.Inexact, decimal.Overflow, decimal.Subnormal, decimal.InvalidOperation]
)
"""The same limits; a number that exceeds them raises instead of being rounded."""

_KINDS = {
    "S": "a string",
    "N": "a number",
    "B": "binary",
    "BOOL": "a boolean",
    "NULL": "null",
    "L": "a list",
    "M": "a map",
    "SS": "a string set",
    "NS": "a number set",
    "BS": "a binary set",
}


def kind_of(value: Value) -> str:
    """Return the type of a value in words, such as `a string`."""
    return _KINDS.get(next(iter(value), ""), "not an attribute value")


def shown(value: Value) -> str:
    """Return a value as text for a message: its type, and at most 40 characters of a scalar, never more of an item."""
    for tag in ("S", "N"):
        if tag in value:
            text = str(value[tag])
            return f"{_KINDS[tag]}, {text[:40] + '…' if len(text) > 40 else text!r}"
    return kind_of(value)


def number_text(number: Decimal) -> str:
    """Return a number as DynamoDB returns it: no exponent, no trailing zeros after the point, no sign on zero."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def lookup(image: Image, path: str, stored: bool = False) -> Value | None:
    """Return the value of a name, such as `address.city` or `tags.0`; None if it is absent, or NULL and not `stored`."""
    if "." not in path and path[:1] not in ("'", '"'):
        value = image.get(path)
        return value if stored else having(value)
    first, *rest = steps(path)
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
    return value if stored else having(value)


def having(value: Value | None) -> Value | None:
    """Return a stored value; None if it is absent or NULL."""
    return None if value is None or "NULL" in value else value


def valued(image: Image | None) -> Image:
    """Return the attributes of an item that have a value; none without an item."""
    return {name: value for name, value in (image or {}).items() if "NULL" not in value}


def plain(value: Value) -> Any:
    """Return a value as plain JSON, for people and for programs that do not use the wire form.

    A number that is neither whole nor exact as a float becomes `{"$number": text}`, binary `{"$binary": base64}`, a set
    `{"SS": […]}`, sorted. Case files read these forms.
    """
    tag, data = next(iter(value.items()))
    match tag:
        case "N":
            return _plain_number(Decimal(data))
        case "B":
            return {"$binary": data}
        case "NULL":
            return None
        case "L":
            return [plain(element) for element in data]
        case "M":
            return {name: plain(element) for name, element in data.items()}
        case "SS":
            return {"SS": sorted(data)}
        case "NS":
            return {"NS": [_plain_number(number) for number in sorted(map(Decimal, data))]}
        case "BS":
            return {"BS": [{"$binary": element} for element in sorted(data)]}
    return data


def _plain_number(number: Decimal) -> int | float | dict[str, str]:
    if number == number.to_integral_value():
        return int(number)
    nearest = float(number)
    return nearest if Decimal(repr(nearest)) == number else {"$number": number_text(number)}


def python(value: Value) -> Any:
    """Return a value as Python's, as boto3's resources do: Decimal, bytes, set, None, list, dict. `wire` is the reverse."""
    tag, data = next(iter(value.items()))
    match tag:
        case "N":
            return Decimal(data)
        case "B":
            return base64.b64decode(data)
        case "NULL":
            return None
        case "L":
            return [python(element) for element in data]
        case "M":
            return python_item(data)
        case "SS":
            return set(data)
        case "NS":
            return set(map(Decimal, data))
        case "BS":
            return set(map(base64.b64decode, data))
    return data


def python_item(image: Image) -> dict[str, Any]:
    """Return an item, or some of its attributes, with Python's values."""
    return {name: python(value) for name, value in image.items()}


def plain_item(image: Image) -> dict[str, Any]:
    """Return an item, or some of its attributes, as plain JSON."""
    return {name: plain(value) for name, value in image.items()}


def plain_items(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return items with Python's values as plain JSON."""
    return [plain_item({name: wire(value) for name, value in item.items()}) for item in items]


def plain_words(value: Any) -> str:
    """Return plain JSON as text for people: all numbers without quotes, and sets marked as such."""
    if isinstance(value, Mapping):
        if len(value) == 1:
            ((name, content),) = value.items()
            if name == "$number":
                return str(content)
            if name in ("SS", "NS", "BS") and isinstance(content, list):
                return f"set {plain_words(content)}"
        return "{" + ", ".join([f"{plain_words(name)}: {plain_words(inner)}" for name, inner in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(plain_words, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)


def json_of(document: Mapping[str, Any]) -> str:
    """Return a document as JSON that keeps all digits of Decimals, in the form that `wire` reads."""
    return json.dumps(document, ensure_ascii=False, default=lambda value: plain(wire(value)))


def wire(constant: Any) -> dict[str, Any]:
    """Return a Python or JSON constant as an attribute value, also `{"$binary": base64}` and `{"$number": text}` of `plain`.

    A float becomes the decimal number that represents it: 0.1 becomes 0.1. Raises LanguageError, with a path, for values
    that DynamoDB cannot store.
    """
    match constant:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": bool(constant)}
        case str():
            return {"S": str(constant)}
        case int() | float() | Decimal():
            return {"N": number_text(exact_number(constant))}
        case bytes() | bytearray():
            return {"B": base64.b64encode(constant).decode()}
        case Mapping():
            if len(constant) == 1 and isinstance(constant.get("$binary"), str):
                return {"B": str(constant["$binary"])}
            if is_number_form(constant):
                return {"N": number_text(exact_number(constant["$number"]))}
            return {"M": {_name(name): _inner(element, name) for name, element in constant.items()}}
        case list() | tuple():
            return {"L": [_inner(element, position) for position, element in enumerate(constant)]}
        case Set():
            return wire_set(constant)
    raise LanguageError(f"{type(constant).__name__} cannot be stored in DynamoDB; write text, a number or a boolean")


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise LanguageError(f"the name {name!r} must be text; put it in quotes")
    return str(name)


def _inner(constant: Any, step: str | int) -> dict[str, Any]:
    try:
        return wire(constant)
    except LanguageError as error:
        raise error.within(step) from None


def is_number_form(constant: Any) -> bool:
    """Return whether a constant is a number as JSON keeps all its digits: `{"$number": "0.10000000000000000001"}`."""
    return isinstance(constant, Mapping) and len(constant) == 1 and isinstance(constant.get("$number"), str)


def exact_number(number: int | float | Decimal | str) -> Decimal:
    """Return a number as DynamoDB stores it. Raises LanguageError if it has more digits, or is something else."""
    try:
        exact = Decimal(float.__repr__(number)) if isinstance(number, float) else Decimal(number)
        if exact.is_finite():
            return EXACT.plus(exact)
    except decimal.InvalidOperation:
        raise LanguageError(f"{str(number)[:60]!r} is not a number") from None
    except decimal.DecimalException:
        pass
    raise LanguageError(
        f"{str(number)[:60]} does not fit a DynamoDB number: at most 38 significant digits, between 1E-130 and 9.99E+125"
    )


def wire_set(elements: Iterable[Any]) -> dict[str, Any]:
    """Return texts, numbers or binary values as a set."""
    values = [wire(element) for element in elements]
    tags = {tag for value in values for tag in value}
    if len(tags) != 1 or not tags <= {"S", "N", "B"}:
        raise LanguageError("a set holds at least one element, and only texts, only numbers or only binary")
    tag = tags.pop()
    return {f"{tag}S": sorted({value[tag] for value in values})}


def canonical(value: Value) -> dict[str, Any]:
    """Return a form that is the same for two values if and only if they are equal in DynamoDB, with names and sets in order.

    Its JSON can be hashed.
    """
    tag, data = next(iter(value.items()))
    match tag:
        case "N":
            return {"N": number_text(Decimal(data))}
        case "SS" | "BS":
            return {tag: sorted(data)}
        case "NS":
            return {"NS": [number_text(number) for number in sorted(set(map(Decimal, data)))]}
        case "L":
            return {"L": [canonical(element) for element in data]}
        case "M":
            return {"M": {name: canonical(data[name]) for name in sorted(data)}}
    return {tag: data}


def same(a: Value | None, b: Value | None) -> bool:
    """Return whether two values are equal in DynamoDB: numbers by value, sets without order. None equals only None."""
    if a is b or a == b:
        return True
    if a is None or b is None:
        return False
    tag, ours = next(iter(a.items()))
    theirs = b.get(tag)
    if theirs is None:
        return False
    match tag:
        case "N":
            return Decimal(ours) == Decimal(theirs)
        case "SS" | "BS":
            return set(ours) == set(theirs)
        case "NS":
            return set(map(Decimal, ours)) == set(map(Decimal, theirs))
        case "L":
            return len(ours) == len(theirs) and all(map(same, ours, theirs))
        case "M":
            return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in ours)
    return False


def differing(image: Image | None, wanted: Mapping[str, Value | None]) -> dict[str, Value | None]:
    """Return the attributes of `wanted` that differ on an item; None means an absent attribute."""
    held = image or {}
    return {name: value for name, value in wanted.items() if not same(held.get(name), value)}


def changed_attributes(before: Image | None, after: Image | None) -> list[str]:
    """Return the names of the attributes that differ between two images of an item; None means no item."""
    old, new = before or {}, after or {}
    return [name for name in dict.fromkeys([*new, *old]) if not same(old.get(name), new.get(name))]


def item_size(image: Image) -> int:
    """Return the bytes of an item as DynamoDB counts them: names and values."""
    return sum(attribute_size(name, value) for name, value in image.items())


def attribute_size(name: str, value: Value) -> int:
    return _length(name) + size(value)


def size(value: Value) -> int:
    if "S" in value:
        return _length(value["S"])
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return _number_size(content)
        case "B":
            return len(str(content)) * 3 // 4 - str(content).count("=")
        case "BOOL" | "NULL":
            return 1
        case "M":
            return 3 + sum(1 + _length(name) + size(each) for name, each in content.items())
        case "L":
            return 3 + sum(1 + size(each) for each in content)
        case "SS":
            return sum(map(_length, content))
        case "NS":
            return sum(map(_number_size, content))
    return sum(len(b64decode(each)) for each in content)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _number_size(text: str) -> int:
    """Return about one byte for two digits, and one more: AWS documents only this."""
    digits = text.lstrip("-").replace(".", "").strip("0")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")


LONGEST_TEXT = 512
"""The size limit of an encoded value: a sort key of 1024 bytes also holds a source key."""

_COMPLEMENT = str.maketrans("0123456789", "9876543210")
_ESCAPES = {code: '"' + chr(0x23 + code) for code in range(0x23)}


def encode_order(value: Mapping[str, Any]) -> str:
    """Return a string or number in wire form as text whose order is the order of the values: numbers by value, then strings
    by UTF-8 bytes. Raises BadInput for other types and too long text.

    The least, the greatest and the newest three values are then a query with a limit. No encoding is the prefix of another,
    so that more text may follow (a source key, to break ties). Numbers are encoded as in the FoundationDB tuple layer (sign,
    exponent, mantissa), here in decimal because DynamoDB's numbers are decimal: 38 digits, 1E-130 to 9.99…E+125.
    """
    if "N" in value:
        return _ordered_number(Decimal(value["N"]))
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


def _ordered_number(number: Decimal) -> str:
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
