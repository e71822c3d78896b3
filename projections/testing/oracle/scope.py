"""The values of names in a rule for one source item: the variable of `each`, key variables, attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from projections.language.keys import Image, Value
from projections.testing.oracle.values import Missing, Unfit, text

__all__ = ["Scope", "is_path", "steps", "walk"]


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
        value = self.stored(path)
        return None if value is None or "NULL" in value else value

    def stored(self, path: str) -> Value | None:
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
    found, place = [], 0
    while place < len(path) and (match := _STEP.match(path, place)):
        single, double, plain = match.groups()
        found.append(single.replace("''", "'") if single else double.replace('""', '"') if double else plain)
        place = match.end()
    return found


def walk(value: Value, steps: list[str]) -> Value | None:
    """The value at the end of a path into maps and, by position, lists."""
    found: Value | None = value
    for step in steps:
        if found is None:
            return None
        if "M" in found:
            found = found["M"].get(step)
        elif "L" in found and step.isdecimal() and int(step) < len(found["L"]):
            found = found["L"][int(step)]
        else:
            return None
    return found
