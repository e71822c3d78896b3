"""Templates with their pipes, and entities: how an item is recognised, and how the key of a target is made."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_FLOOR, Decimal
from functools import cache
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from projections.language.keys import Image, ItemKey, Value
from projections.testing.oracle.oracle_expressions import Expression, pattern
from projections.testing.oracle.scalar import EXACT, Missing, Scope, Unfit, plain, steps, storable, text, wire

__all__ = ["KEY_BYTES", "Entity", "KeyTemplate", "Piped", "Slot", "Table", "Template", "numeric", "pipe", "piped_text"]


Piped: TypeAlias = str | Decimal | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(
    r"(\d{4})-?(\d\d)-?(\d\d)(?:[Tt ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+))?)?)?\s?([Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def piped_text(value: Piped) -> str:
    """The text that a template puts in its place."""
    if isinstance(value, datetime):
        return value.isoformat()
    return plain(value) if isinstance(value, Decimal) else value


@cache
def pipe(name: str, *arguments: str) -> Callable[[Piped], Piped]:
    """What `name(arguments)` does to a value. The result raises Unfit if the value does not fit."""
    if name == "pad":
        return lambda value: _digits(_whole(value), int(arguments[0]))
    if name == "invert":
        size = int(arguments[0])
        return lambda value: _digits(10**size - 1 - int(_digits(_whole(value), size)), size)
    if name == "bucket":
        return lambda value: str(zlib.crc32(piped_text(value).encode()) % int(arguments[0]))
    if name == "truncate":
        return lambda value: piped_text(value)[: int(arguments[0])]
    if name == "date":
        matches = [re.fullmatch("from *= *(.*)", argument) for argument in arguments]
        declared = [match[1] for match in matches if match]
        zones = [ZoneInfo(text) for text, match in zip(arguments[1:], matches[1:], strict=True) if not match]
        return lambda value: _date(_declared_time(value, *declared), arguments[0], zones[0] if zones else UTC)
    change = {"lower": str.lower, "upper": str.upper}[name]
    return lambda value: change(piped_text(value))


def _whole(value: Piped) -> int:
    """A whole number of at least 0, given as a number or in ASCII digits."""
    if isinstance(value, Decimal) and value >= 0 and value == value.to_integral_value(context=EXACT):
        return int(value)
    if isinstance(value, str) and re.fullmatch("[0-9]+", value):
        return int(value)
    raise Unfit(f"not a whole number: {value}")


def _digits(value: int, size: int) -> str:
    if value >= 10**size:
        raise Unfit(f"{value} has more than {size} digits")
    return str(value).zfill(size)


def _time(value: Piped) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, Decimal) or _NUMBER.fullmatch(value):
        seconds = Decimal(value)
        if -100_000_000 < seconds < 100_000_000:
            raise Unfit(f"a date without separators, or a time before 1973: {value}")
        return _since_epoch(seconds)
    return _iso(value)


def _declared_time(value: Piped, form: str = "") -> datetime:
    """The time of a value whose form the rule declares: `seconds`, `milliseconds`, `ulid`, or the codes of its parts."""
    if not form or isinstance(value, datetime):
        return _time(value)
    text = piped_text(value)
    if form == "ulid":
        return _ulid(text)
    if form in ("seconds", "milliseconds"):
        if not _NUMBER.fullmatch(text):
            raise Unfit(f"no number of {form}: {text}")
        return _since_epoch(Decimal(text) if form == "seconds" else EXACT.divide(Decimal(text), Decimal(1000)))
    sizes = {"Y": 4, "G": 4, "j": 3, "f": 6, "u": 1}
    places = re.split("%(.)", form)  # a literal, a code, a literal, …
    strict = "".join(
        re.escape(part) if place % 2 == 0 else "%" if part == "%" else "[0-9]" * sizes.get(part, 2)
        for place, part in enumerate(places)
    )
    if not re.fullmatch(strict, text):
        raise Unfit(f"not written as {form}: {text}")
    for code, first in (("V", "01"), ("u", "1")):  # strptime wants all parts of a date by weeks
        if "G" in places[1::2] and code not in places[1::2]:
            form, text = f"{form}-%{code}", f"{text}-{first}"
    try:
        moment = datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError as error:
        raise Unfit(f"no time that exists: {text}") from error
    year = moment.isocalendar().year if "G" in places[1::2] else moment.year
    if f"{year:04}" not in text:  # a day or week that the year does not have
        raise Unfit(f"no time that exists: {text}")
    return moment


def _since_epoch(seconds: Decimal) -> datetime:
    if abs(seconds) > 10**12:
        raise Unfit(f"no time: {seconds}")
    micros = int((seconds * 1_000_000).to_integral_value(rounding=ROUND_FLOOR))
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        raise Unfit(f"no time: {seconds}") from error


def _iso(value: str) -> datetime:
    match = _ISO.fullmatch(value)
    if not match:
        raise Unfit(f"not ISO 8601: {value}")
    *parts, fraction, zone = match.groups()
    micros = int((fraction or "0").ljust(6, "0")[:6])
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in parts)
        moment = datetime(year, month, day, hour, minute, second, micros, _offset(zone))
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Unfit(f"no time that exists: {value}") from error


def _offset(zone: str | None) -> timezone:
    if zone is None or zone in "Zz":
        return UTC
    digits = zone[1:].replace(":", "").ljust(4, "0")
    if int(digits[2:]) > 59:
        raise ValueError(zone)
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-size if zone[0] == "-" else size)


def _ulid(value: str) -> datetime:
    letters = value.upper()
    if len(letters) != 26 or letters[0] > "7" or any(letter not in _CROCKFORD for letter in letters):
        raise Unfit(f"not a ULID: {value}")
    millis = 0
    for letter in letters[:10]:
        millis = millis * 32 + _CROCKFORD.index(letter)
    return _since_epoch(EXACT.divide(Decimal(millis), Decimal(1000)))


def _date(moment: datetime, form: str, zone: ZoneInfo | timezone) -> str:
    try:
        local = moment.astimezone(zone)
    except OverflowError as error:
        raise Unfit(f"no such time in {zone}") from error
    year, week, weekday = local.isocalendar()
    # strftime leaves years before 1000 unpadded on Linux, and they would sort wrongly.
    own = {"Y": f"{local.year:04}", "G": f"{year:04}", "V": f"{week:02}", "u": str(weekday)}
    return re.sub("%(.)", lambda match: own.get(match[1]) or local.strftime(match[0]), form)


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
        match = _PATH.fullmatch(written)
        pipes: list[Callable[[Piped], Piped]] = []
        fallback: Piped | None = None
        for name, arguments in _PIPE.findall(rest):
            if name == "default":
                fallback = _arguments(arguments)[0] if fallback is None else fallback
                continue
            pipes.append(pipe(name, *_arguments(arguments)))
            fallback = None if fallback is None else pipes[-1](fallback)
        shown_as = None if fallback is None else piped_text(fallback)
        if match is None or re.fullmatch(r"[0-9.]+", match[1]):
            return cls(written.strip(), False, tuple(pipes), shown_as, Expression.parse(written))
        return cls(match[1], match[2] == "*", tuple(pipes), shown_as)

    def value(self, scope: Scope) -> Value:
        """Raises Missing and Unfit."""
        return scope.need(self.path) if self.expression is None else self.expression.value(scope)

    def render(self, value: Value | None) -> str:
        """The text of a value, or of a missing one. Raises Unfit."""
        if value is None:
            return str(self.fallback)
        result: Piped = Decimal(value["N"]) if "N" in value else text(value)
        for step in self.pipes:
            result = step(result)
        return piped_text(result)


def _arguments(text: str) -> list[str]:
    """`(a, 'b')` → a and b."""
    inner, place, arguments = text.strip()[1:-1], 0, []
    while text and (match := _ARGUMENT.match(inner, place)):
        arguments.append(next(filter(None, match.groups()), ""))
        place = match.end()
        if not match[0].endswith(","):
            break
    return arguments


@dataclass(frozen=True, slots=True)
class Template:
    """A template that is only rendered."""

    parts: tuple[str | Slot, ...]

    @classmethod
    def parse(cls, source: str) -> Template:
        parts: list[str | Slot] = []
        for match in _PART.finditer(source):
            whole = match[0]
            if match[1] is not None:
                parts.append(Slot.parse(match[1]))
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
        iterator = iter(values)
        return "".join(part if isinstance(part, str) else part.render(next(iterator)) for part in self.parts)


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
        match = self._pattern.fullmatch(key)
        if not match:
            return None
        variables: dict[str, Value] = {}
        for slot, value in zip(self.template.slots, match.groups(), strict=True):
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


KEY_BYTES = {"partition": 2048, "sort": 1024}


class Table:
    """The key attributes of a table and of its indexes."""

    def __init__(self, name: str, document: Mapping[str, Any]) -> None:
        self.name = name
        self.separator: str = document["separator"]
        self.keys: list[tuple[str, str]] = [*document["key"].items()]
        self.indexes: list[set[str]] = []
        """The key attributes of each index."""
        self.index_keys: dict[str, tuple[str, int]] = {}
        """Index key attribute → its type and how many bytes it may have."""
        for index in document["indexes"].values():
            parts = {"partition": dict(self.keys[:1]), "sort": {}, **index}
            self.indexes.append({attribute for part in KEY_BYTES for attribute in parts[part]})
            for part, size in KEY_BYTES.items():
                for attribute, kind in parts[part].items():
                    smaller = min(size, self.index_keys.get(attribute, (kind, size))[1])
                    self.index_keys[attribute] = (kind, smaller)

    def key_of(self, item: Image) -> ItemKey:
        return ItemKey(self.name, *(_text(kind, item[name][kind]) for name, kind in self.keys))

    def attributes(self, key: ItemKey) -> dict[str, Value]:
        """The key attributes of the item with this key."""
        return {name: {kind: str(part)} for (name, kind), part in zip(self.keys, key[1:], strict=False)}


class Entity:
    """A kind of item."""

    def __init__(self, name: str, document: Mapping[str, Any], table: Table) -> None:
        self.name = name
        self.table = table
        self.derived: bool = document["derived"]
        self._key = [KeyTemplate(document["key"][attribute], kind, table.separator) for attribute, kind in table.keys]
        self._fits = pattern(document["match"]) if "match" in document else None
        scalars = {n: v for n, v in document.get("match", {}).items() if not isinstance(v, dict | list)}
        self.constants: dict[str, Value] = {steps(n)[0]: wire(v) for n, v in scalars.items() if len(steps(n)) == 1}
        """What `match` says outright, and is therefore written on items that rules create."""

    def read(self, key: ItemKey) -> dict[str, Value] | None:
        """The key variables, None if the key is not of this entity."""
        if key.table != self.table.name:
            return None
        variables: dict[str, Value] = {}
        for template, part in zip(self._key, key[1:], strict=False):
            values = template.read(str(part))
            if values is None or any(_differ(variables.get(name), value) for name, value in values.items()):
                return None
            variables.update(values)
        return variables

    def fits(self, item: Image, variables: Mapping[str, Value]) -> bool:
        if self._fits is None:
            return True
        try:
            return self._fits(Scope(item, variables).stored_value)
        except Unfit:
            return False

    def key(self, need: Callable[[str], Value]) -> ItemKey:
        """The key of the item with these variables. Raises Unfit, and what `need` raises."""
        parts = [template.render(need) for template in self._key]
        for part, most in zip(parts, KEY_BYTES.values(), strict=False):
            if not 0 < len(part.encode()) <= most:
                raise Unfit(f"not the size of a key: {part[:80]!r}")
        return ItemKey(self.table.name, *parts)


def _differ(value: Value | None, other: Value) -> bool:
    """Whether a variable that stands twice in a key has two values. In a numeric and a text attribute the text counts."""
    if value is None or value == other:
        return False
    return "B" in value or "B" in other or text(value) != text(other)


def _text(kind: str, content: str) -> str:
    """A key attribute as text: 1.0 and 1 are one number."""
    return plain(Decimal(content)) if kind == "N" else content
