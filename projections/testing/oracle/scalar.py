"""The values of an item and of names in a rule: numbers, texts, what is missing and what cannot be read."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact
from typing import Any

from projections.language.keys import Image, Value

EXACT = Context(prec=1000, Emin=-9999, Emax=9999, traps=[Inexact])
"""Wide enough that no sum or product of DynamoDB's numbers is ever rounded."""

_ROUNDED = Context(prec=38, rounding=ROUND_HALF_EVEN)


class Missing(Exception):
    """A rule names a value that the item lacks."""


class Unfit(Exception):
    """A value is of the wrong kind or does not fit: the rule contributes nothing."""


def number(value: Value) -> Decimal:
    """The value of an N. Raises Unfit for anything else."""
    if "N" not in value:
        raise Unfit(f"not a number: {value}")
    return Decimal(value["N"])


def plain(value: Decimal) -> str:
    """A number as text: no exponent, no needless zeros, no negative zero."""
    if not value:
        return "0"
    shown = format(value, "f")
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def text(value: Value) -> str:
    """A value as a part of a key. Raises Unfit for what has no text."""
    if "S" in value:
        return str(value["S"])
    if "N" in value:
        return plain(Decimal(value["N"]))
    raise Unfit(f"neither text nor number: {value}")


def storable(value: Decimal) -> bool:
    """Whether DynamoDB can hold the number: 38 significant digits, 1E-130 to under 1E+126."""
    if not value:
        return True
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    return len(digits) <= 38 and -130 <= value.adjusted() <= 125


def addable(value: Decimal) -> bool:
    """Whether `sum` and `avg` take the number: 18 digits before the decimal point, 10 after it."""
    return abs(value) < 10**18 and EXACT.remainder(value, Decimal("1E-10")) == 0


def mean(total: Decimal, count: int) -> Decimal:
    return _ROUNDED.divide(total, Decimal(count))


def wire(value: Any) -> dict[str, Any]:
    """A constant of a rule file in wire form."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int | float | Decimal):
        return {"N": plain(Decimal(str(value)))}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bytes):
        return {"B": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"M": {name: wire(inner) for name, inner in value.items()}}
    return {"L": [wire(inner) for inner in value]}


def exact(document: Any) -> Any:
    """A document in which numbers with many digits and binary values are Python's."""

    def read(form: dict[str, Any]) -> Any:
        if form.keys() == {"$number"} and isinstance(form["$number"], str):
            return Decimal(form["$number"])
        return b64decode(form["$binary"]) if form.keys() == {"$binary"} and isinstance(form["$binary"], str) else form

    return json.loads(json.dumps(document), object_hook=read)


def normal(value: Value) -> Any:
    """Equal for equal values: numbers by value, sets without order."""
    ((kind, content),) = value.items()
    if kind == "N":
        return kind, Decimal(content)
    if kind == "L":
        return kind, [normal(inner) for inner in content]
    if kind == "M":
        return kind, {name: normal(inner) for name, inner in content.items()}
    if kind in ("SS", "NS", "BS"):
        return kind, frozenset(map(Decimal, content) if kind == "NS" else content)
    return kind, content


def levels(value: Value) -> int:
    """Return how many levels a value has, lists and maps included: DynamoDB allows 32."""
    ((kind, content),) = value.items()
    inside = content.values() if kind == "M" else content if kind == "L" else ()
    return 1 + max((levels(each) for each in inside), default=0)


def size(value: Value) -> int:
    """Bytes of a value as DynamoDB counts them."""
    kind: str
    content: Any
    ((kind, content),) = value.items()
    if kind == "M":
        return 3 + sum(len(name.encode()) + size(inner) + 1 for name, inner in content.items())
    if kind == "L":
        return 3 + sum(size(inner) + 1 for inner in content)
    if kind in ("SS", "NS", "BS"):
        return sum(size({kind[0]: member}) for member in content)
    if kind == "N":  # a byte for two digits and one more, one for a sign; zeros at both ends do not count
        digits = str(content).strip("-").replace(".", "").strip("0")
        return (len(digits) + 1) // 2 + 1 + str(content).startswith("-")
    if kind == "B":
        return len(b64decode(content))
    return len(str(content).encode()) if kind == "S" else 1


@dataclass(frozen=True, slots=True)
class Scope:
    """One source item (without guards), its key variables, and the element of `each`, if any, as a variable."""

    item: Image
    variables: Mapping[str, Value]
    element: Mapping[str, Value] = field(default_factory=dict)

    def get(self, path: str) -> Value | None:
        """Return the value of a name or dotted path, None if the item lacks it or has NULL there.

        Raises Unfit if a key variable and an attribute of this name differ.
        """
        value = self.stored_value(path)
        return None if value is None or "NULL" in value else value

    def stored_value(self, path: str) -> Value | None:
        """Return the same for a pattern, with NULL for NULL."""
        head, *rest = steps(path)
        if head in self.element:
            return walk(self.element[head], rest)
        attribute = self.item.get(head)
        if rest or head not in self.variables:
            return None if attribute is None else walk(attribute, rest)
        variable = self.variables[head]
        if attribute is None or "NULL" in attribute:
            return variable
        if attribute != variable and text(attribute) != text(variable):
            raise Unfit(f"{head} is {variable} in the key and {attribute} as an attribute")
        return attribute

    def need(self, path: str) -> Value:
        """As `get`, but raises Missing where there is no value."""
        value = self.get(path)
        if value is None:
            raise Missing(path)
        return value


_STEP = re.compile(r"""(?:'((?:[^']|'')+)'|"((?:[^"]|"")+)"|([^.]*))(?:\.|$)""")


_BARE_OR_QUOTED = r"""(?:'(?:[^']|'')+'|"(?:[^"]|"")+"|[\w~$@:-]+)"""


def is_path(text: str) -> bool:
    """Whether a text is a path, and not an expression."""
    return not text.startswith("-") and bool(re.fullmatch(rf"{_BARE_OR_QUOTED}(?:\.{_BARE_OR_QUOTED})*", text))


def steps(path: str) -> list[str]:
    """The parts of a path between its dots. A part in quotes may contain dots, and quotes twice."""
    parts, place = [], 0
    while place < len(path) and (match := _STEP.match(path, place)):
        single, double, plain = match.groups()
        parts.append(single.replace("''", "'") if single else double.replace('""', '"') if double else plain)
        place = match.end()
    return parts


def walk(value: Value, steps: list[str]) -> Value | None:
    """The value at the end of a path into maps and, by position, lists."""
    part: Value | None = value
    for step in steps:
        if part is None:
            return None
        if "M" in part:
            part = part["M"].get(step)
        elif "L" in part and step.isdecimal() and int(step) < len(part["L"]):
            part = part["L"][int(step)]
        else:
            return None
    return part
