"""Templates: text with `{variable}` in it, rendered for a source item, and read back from keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from projections.language.keys import Value
from projections.testing.oracle.expressions import Expression
from projections.testing.oracle.pipes import Piped, pipe, shown
from projections.testing.oracle.scope import Scope
from projections.testing.oracle.values import Missing, Unfit, plain, storable, text

__all__ = ["KeyTemplate", "Slot", "Template", "numeric"]

_ARGUMENTS = r"\((?:'[^']*'|\"[^\"]*\"|[^()'\"])*\)"
_PART = re.compile(rf"\{{\{{|\}}\}}|\{{((?:{_ARGUMENTS}|'[^']*'|\"[^\"]*\"|[^{{}}'\"])*)\}}|[^{{}}]+")
_STEP = r"""(?:'(?:[^']|'')+'|"(?:[^"]|"")+"|[\w~$@:-]+)"""
_PATH = re.compile(rf"\s*((?!-){_STEP}(?:\.{_STEP})*)(\*?)\s*")
_BEFORE_PIPES = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^|'\"])*")
_PIPE = re.compile(rf"\|\s*(\w+)\s*({_ARGUMENTS})?\s*")
_ARGUMENT = re.compile(r"\s*(?:'([^']*)'|\"([^\"]*)\"|([^,]*?))\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class Slot:
    """One `{path|pipe|pipe}`; `open` if it ends in a star and may hold separators.

    What is no path is an expression: its value is that of the slot.
    """

    path: str
    open: bool
    pipes: tuple[Callable[[Piped], Piped], ...]
    fallback: str | None = None
    """What a missing value becomes: the text of `default`, through the pipes behind it."""
    expression: Expression | None = None

    @classmethod
    def parse(cls, source: str) -> Slot:
        before = _BEFORE_PIPES.match(source)
        assert before is not None
        written, rest = before[0], source[before.end() :]
        found = _PATH.fullmatch(written)
        pipes: list[Callable[[Piped], Piped]] = []
        fallback: Piped | None = None
        for name, given in _PIPE.findall(rest):
            if name == "default":
                fallback = _arguments(given)[0] if fallback is None else fallback
                continue
            pipes.append(pipe(name, *_arguments(given)))
            fallback = None if fallback is None else pipes[-1](fallback)
        shown_as = None if fallback is None else shown(fallback)
        if found is None or re.fullmatch(r"[0-9.]+", found[1]):
            return cls(written.strip(), False, tuple(pipes), shown_as, Expression.parse(written))
        return cls(found[1], found[2] == "*", tuple(pipes), shown_as)

    def value(self, scope: Scope) -> Value:
        """Raises Missing and Unfit."""
        return scope.need(self.path) if self.expression is None else self.expression.value(scope)

    def shown(self, value: Value | None) -> str:
        """The text of a value, or of a missing one. Raises Unfit."""
        return self.render(value) if value is not None else str(self.fallback)

    def render(self, value: Value) -> str:
        """Raises Unfit."""
        result: Piped = Decimal(value["N"]) if "N" in value else text(value)
        for step in self.pipes:
            result = step(result)
        return shown(result)


def _arguments(given: str) -> list[str]:
    """`(a, 'b')` → a and b."""
    inner, place, found = given.strip()[1:-1], 0, []
    while given and (match := _ARGUMENT.match(inner, place)):
        found.append(next(filter(None, match.groups()), ""))
        place = match.end()
        if not match[0].endswith(","):
            break
    return found


@dataclass(frozen=True, slots=True)
class Template:
    """A template that is only rendered."""

    parts: tuple[str | Slot, ...]

    @classmethod
    def parse(cls, source: str) -> Template:
        parts: list[str | Slot] = []
        for found in _PART.finditer(source):
            whole = found[0]
            if found[1] is not None:
                parts.append(Slot.parse(found[1]))
            else:
                parts.append({"{{": "{", "}}": "}"}.get(whole, whole))
        return cls(tuple(parts))

    @property
    def slots(self) -> list[Slot]:
        return [part for part in self.parts if isinstance(part, Slot)]

    def render(self, scope: Scope) -> str:
        """The text for an item. Raises Missing, and Unfit: what is missing comes before a computation that fails."""
        values: list[Value | None] = []
        wrong: list[Unfit] = []
        for slot in self.slots:
            try:
                values.append(slot.value(scope))
            except Missing:
                if slot.fallback is None:
                    raise
                values.append(None)
            except Unfit as unfit:
                if slot.expression is None:
                    raise
                wrong.append(unfit)
        if wrong:
            raise wrong[0]
        found = iter(values)
        return "".join(part if isinstance(part, str) else part.shown(next(found)) for part in self.parts)


class KeyTemplate:
    """The template of one key attribute of an entity: rendered and read back."""

    def __init__(self, source: str, kind: str, separator: str) -> None:
        self.template = Template.parse(source)
        self.kind = kind
        self._one = f"[^{re.escape(separator)}]+"
        pattern = "".join(f"({self._slot(p)})" if isinstance(p, Slot) else re.escape(p) for p in self.template.parts)
        self._pattern = re.compile(pattern, re.DOTALL)

    def _slot(self, slot: Slot) -> str:
        return ".+" if slot.open else self._one

    def read(self, key: str) -> dict[str, Value] | None:
        """The variables in the text of a key attribute, None if it is not of this form."""
        if self.kind != "S":
            return {slot.path: {self.kind: key} for slot in self.template.slots}
        found = self._pattern.fullmatch(key)
        if not found:
            return None
        variables: dict[str, Value] = {}
        for slot, value in zip(self.template.slots, found.groups(), strict=True):
            if variables.setdefault(slot.path, {"S": value}) != {"S": value}:
                return None
        return variables

    def render(self, need: Callable[[str], Value]) -> str:
        """The text of the key attribute. Raises Unfit if a value is not one that `read` would give back."""
        if self.kind == "B":
            value = need(self.template.slots[0].path)
            if "B" not in value:
                raise Unfit(f"not binary: {value}")
            return str(value["B"])
        rendered: dict[str, Value] = {}
        parts: list[str] = []
        for part in self.template.parts:
            if isinstance(part, str):
                parts.append(part)
                continue
            parts.append(part.render(need(part.path)))
            rendered[part.path] = {"S": parts[-1]}
        whole = "".join(parts)
        if self.kind == "N":
            if numeric(whole) != whole:  # 07 and 7 are one key, but two values
                raise Unfit(f"not how DynamoDB writes the number: {whole!r}")
            return whole
        if self.read(whole) != rendered:
            raise Unfit(f"a variable does not fit in the key: {whole!r}")
        return whole


def numeric(shown_as: str) -> str:
    """The text of a numeric key attribute. Raises Unfit."""
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", shown_as):
        raise Unfit(f"not a number: {shown_as!r}")
    value = Decimal(shown_as)
    if not storable(value):
        raise Unfit(f"beyond 38 digits: {shown_as}")
    return plain(value)
