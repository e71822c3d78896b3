"""Expressions that make the texts of keys: f-strings of literals, parameters and loop variables, and pipes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from projections.inspect.client.layout import Call
from projections.inspect.client.naming import inside, literal
from projections.language.access.plan import Periods
from projections.language.pipes import Pipe, date_arguments, period_step
from projections.language.templates import Field

__all__ = ["Variable", "cased", "number", "period_list", "piped", "text_of"]

NUMBER, TEXT, EITHER = "int | Decimal", "str", "Scalar"


@dataclass(frozen=True)
class Variable:
    """A name in generated code, or an expression, and its type: `str`, `int | Decimal`, or `Scalar` for either."""

    source: str
    type: str = TEXT

    @property
    def text(self) -> str:
        return self.source if self.type == TEXT else f"_text({self.source})"


def piped(value: Variable, pipes: Sequence[Pipe]) -> Variable:
    """Return a value through pipes."""
    for pipe in pipes:
        value = _applied(value, pipe)
    return value


def _applied(value: Variable, pipe: Pipe) -> Variable:
    arguments = pipe.arguments
    match pipe.name:
        case "lower" | "upper":
            return Variable(f"{value.text}.{pipe.name}()")
        case "default":
            return value  # callers give a value
        case "truncate":
            return Variable(f"{value.text}[:{int(arguments[0])}]")
        case "pad" | "invert" | "bucket":
            return Variable(f"_{pipe.name}({value.source}, {int(arguments[0])})")
        case "date":
            return Variable(f"_date({', '.join([_declared(value, pipe).source, *_format(pipe)])})")
        case "ulid":
            return Variable(f"_ulid({value.text})", EITHER)
    return Variable(f"_{pipe.name}({value.source})", EITHER)


def _declared(value: Variable, pipe: Pipe) -> Variable:
    """Return a value as `date` takes it: as a time, if the pipe declares its format."""
    _, _, declared = date_arguments(pipe)
    if not declared:
        return value
    if declared in ("seconds", "milliseconds"):
        factor = "1_000_000" if declared == "seconds" else "1000"
        return Variable(f"_since_1970(Decimal({value.source}) * {factor})", EITHER)
    return Variable(f"_read({value.source}, {literal(declared)})", EITHER)


def _format(pipe: Pipe) -> list[str]:
    form, zone, _ = date_arguments(pipe)
    return [literal(form), *([] if zone in ("UTC", "Etc/UTC") else [f"ZoneInfo({literal(zone)})"])]


def period_list(fan: Periods, low: Variable, high: Variable) -> Call:
    """Return the expression of the periods between two bounds."""
    *before, date = fan.field.pipes
    first, last = (_declared(piped(one, before), date).source for one in (low, high))
    if last != high.source:
        last = f"None if {high.source} is None else {last}"
    form, *zone = _format(date)
    step = period_step(fan.field.pipes)
    words = f"days={step / 86_400:g}" if step >= 43_200 else f"seconds={step:g}"
    return Call("_periods(", [first, last, form, f"timedelta({words})", *zone])


def text_of(parts: Sequence[object], value_of: Callable[[Field], Variable], loops: Callable[[object], str]) -> str:
    """Return the expression of a key's text. `loops` returns the variable that runs over buckets or periods."""
    found: list[tuple[bool, str]] = []
    for part in parts:
        if isinstance(part, str):
            found.append((True, part))
        elif isinstance(part, Field):
            found.append((False, piped(value_of(part), part.pipes).text))
        else:
            found.append((False, loops(part)))
    return joined(found)


def joined(parts: Sequence[tuple[bool, str]]) -> str:
    """Return one expression for literals (True) and expressions of texts (False)."""
    if all(is_literal for is_literal, _ in parts):
        return literal("".join(text for _, text in parts))
    if len(parts) == 1:
        return parts[0][1]
    if any(not is_literal and ('"' in text or "\\" in text) for is_literal, text in parts) or any(
        is_literal and ("\\" in inside(text)) for is_literal, text in parts
    ):
        return " + ".join(literal(text) if is_literal else text for is_literal, text in parts)
    texts = [inside(text) if is_literal else "{" + _BUCKET.sub(r"\1", text) + "}" for is_literal, text in parts]
    return f'f"{"".join(texts)}"'


_BUCKET = re.compile(r"^str\((\w+)\)$")


def number(text: str) -> str:
    """Return a number in Python source."""
    value = Decimal(text)
    return str(int(value)) if value == value.to_integral_value() and abs(value) < 10**18 else f'Decimal("{value}")'


def cased(text: str, source: str) -> str:
    """Return a comparison with a text in any case."""
    return f"{source}.casefold() == {literal(text.casefold())}"
