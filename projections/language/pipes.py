"""Pipes: functions that templates apply to values, such as `{createdAt|date(%Y-%m)}`.

A pipe takes the text of a value (a number in DynamoDB's normal form), and returns text. It depends only on its input: not on
a clock, a locale, or a hash seed of the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import ROUND_FLOOR, Decimal
from functools import partial
from operator import attrgetter
from typing import Any
from zlib import crc32

from projections.language.syntax import LanguageError, suggest
from projections.language.values import CONTEXT


class UnfitError(ValueError):
    """A pipe cannot take a value. The message completes a sentence that begins with the value."""


@dataclass(frozen=True, slots=True)
class Pipe:
    """One pipe with its arguments."""

    name: str
    arguments: tuple[str, ...]
    apply: Callable[[Any], Any] = field(compare=False)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})" if self.arguments else self.name


def chain(calls: Sequence[tuple[str, Sequence[str], int]]) -> tuple[Pipe, ...]:
    """Return the pipes of a template, given (name, arguments, offset) of each. Raises LanguageError."""
    pipes: list[Pipe] = []
    for name, arguments, offset in calls:
        try:
            pipes.append(_pipe(name, arguments))
        except LanguageError as error:
            raise LanguageError(error.message, offset) from None
    try:
        absent_text(pipes)
    except UnfitError as unfit:
        raise LanguageError(f"the text of default does not fit the pipes after it: it {unfit}", calls[0][2]) from None
    return tuple(pipes)


def _pipe(name: str, arguments: Sequence[str]) -> Pipe:
    if name not in PIPES:
        raise LanguageError(f'unknown pipe "{name}"{suggest(name, PIPES)}; the pipes are {", ".join(PIPES)}')
    form, fewest, most, make = PIPES[name]
    if name == "date":  # in one order: the format, the zone, then `from=…`
        declared = [_FROM.sub("from=", argument) for argument in arguments if _FROM.match(argument)]
        arguments = [*(argument for argument in arguments if not _FROM.match(argument)), *declared]
    if not fewest <= len(arguments) <= most:
        raise LanguageError(f"{name} is written {form}")
    return Pipe(name, tuple(arguments), make(*arguments))


def absent_text(pipes: Sequence[Pipe]) -> str | None:
    """Return the text of a missing value: that of `default`, through the pipes after it. None without `default`.

    Raises UnfitError.
    """
    position = next((number for number, pipe in enumerate(pipes) if pipe.name == "default"), None)
    if position is None:
        return None
    text: Any = pipes[position].arguments[0]
    for pipe in pipes[position + 1 :]:
        text = pipe.apply(text)
    return str(text)


def _whole_number(form: str, text: str, most: int) -> int:
    """Return the argument of a pipe that is a number from 1 to `most`. Raises LanguageError."""
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or not 1 <= int(text) <= most:
        raise LanguageError(f"{form} takes a whole number from 1 to {most}, not {text!r}")
    return int(text)


# Digits


def _digits(text: str, limit: int) -> str:
    """Return a non-negative integer of at most `limit` digits, without leading zeros."""
    if not (text.isascii() and text.isdigit()):
        raise UnfitError("is not a whole number of 0 or more")
    if len(text) > limit:
        text = text.lstrip("0") or "0"
        if len(text) > limit:
            raise UnfitError(f"has more than {limit} digits")
    return text


def _pad(n: str) -> Callable[[str], str]:
    width = _whole_number("pad(n)", n, 38)
    return lambda text: _digits(text, width).zfill(width)


def _invert(n: str) -> Callable[[str], str]:
    width = _whole_number("invert(n)", n, 38)
    greatest = 10**width - 1
    return lambda text: str(greatest - int(_digits(text, width))).zfill(width)


def _bucket(n: str) -> Callable[[str], str]:
    # CRC-32, because every language has it: readers of the buckets must be able to compute it, too.
    buckets = _whole_number("bucket(n)", n, 1_000_000)
    return lambda text: str(crc32(text.encode("utf-8", "surrogatepass")) % buckets)


# Text


def _truncate(n: str) -> Callable[[str], str]:
    length = _whole_number("truncate(n)", n, 2048)
    return lambda text: text[:length]


# Times

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?")
# Stricter than datetime.fromisoformat, which accepts more with each version of Python: keys must not depend on that.
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ](?:[01][0-9]|2[0-3]):[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?"
    r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
    r"|[0-9]{8}T(?:[01][0-9]|2[0-3])[0-9]{4}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{4})?"
)
_CROCKFORD = {letter: value for value, letter in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}
_CODES: dict[str, tuple[str, Callable[[datetime], Any]]] = {
    "Y": ("%04d", attrgetter("year")),
    "m": ("%02d", attrgetter("month")),
    "d": ("%02d", attrgetter("day")),
    "H": ("%02d", attrgetter("hour")),
    "M": ("%02d", attrgetter("minute")),
    "S": ("%02d", attrgetter("second")),
    "f": ("%06d", attrgetter("microsecond")),
    "j": ("%03d", lambda time: time.timetuple().tm_yday),
    "G": ("%04d", lambda time: time.isocalendar().year),
    "V": ("%02d", lambda time: time.isocalendar().week),
    "u": ("%d", lambda time: time.isocalendar().weekday),
}


_EARLY_SECONDS = 10**8
"""1973-03-03: a lesser number of seconds is more often a date without separators (2026, 202601, 20260131)."""


def _after_epoch(text: str, unit: int) -> datetime:
    """Return the time this many units of 10^-unit seconds after the epoch, rounded down to a microsecond."""
    try:
        microseconds = CONTEXT.scaleb(Decimal(text), 6 - unit).to_integral_value(ROUND_FLOOR)
        return _EPOCH + timedelta(microseconds=int(microseconds))
    except OverflowError:
        raise UnfitError("is not between the years 1 and 9999") from None


def _milliseconds(text: str) -> datetime:
    if not _NUMBER.fullmatch(text):
        raise UnfitError("is not a number of milliseconds since 1970")
    return _after_epoch(text, 3)


def _seconds(text: str, least: int = _EARLY_SECONDS) -> datetime:
    if not _NUMBER.fullmatch(text):
        raise UnfitError("is not a number of seconds since 1970")
    if abs(Decimal(text)) < least:
        form = {4: "%Y", 6: "%Y%m", 7: "%Y%j"}.get(len(text), "%Y%m%d")
        raise UnfitError(
            f"would be a time before 1973, as seconds since 1970. If it is a date, add its format to `date`: from={form}. "
            "If it is seconds, add from=seconds"
        )
    return _after_epoch(text, 0)


def _ulid(text: str) -> datetime:
    letters = text.upper()
    if len(letters) != 26 or letters[0] > "7" or not _CROCKFORD.keys() >= set(letters):
        raise UnfitError("is not a ULID (26 letters and digits, none of them I, L, O or U)")
    milliseconds = 0
    for letter in letters[:10]:
        milliseconds = milliseconds * 32 + _CROCKFORD[letter]
    return _after_epoch(str(milliseconds), 3)


_READERS: dict[str, Callable[[str], datetime]] = {
    "seconds": partial(_seconds, least=0),
    "milliseconds": _milliseconds,
    "ulid": _ulid,
}
"""What `from=` can name beside a format."""


def _time(text: str) -> datetime:
    if _ISO.fullmatch(text):
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise UnfitError("is not a time that exists") from None
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    if _NUMBER.fullmatch(text):
        return _seconds(text)
    raise UnfitError("is neither ISO 8601 (2025-01-31, 2025-01-31T12:00:00Z) nor seconds since 1970")


_FROM = re.compile(r"from\s*=\s*")


def date_arguments(pipe: Pipe) -> tuple[str, str, str]:
    """Return the format of a pipe `date`, its zone (UTC unless given), and the format that it reads (empty unless given)."""
    form, *others = pipe.arguments
    zone = next((argument for argument in others if not argument.startswith("from=")), "UTC")
    return form, zone, next((argument.removeprefix("from=") for argument in others if argument.startswith("from=")), "")


def _date(form: str, *others: str) -> Callable[[str | datetime], str]:
    declared = [argument for argument in others if argument.startswith("from=")]
    if form.startswith("from=") or len(declared) > 1 or len(others) - len(declared) > 1:
        raise LanguageError(f"date is written {PIPES['date'][0]}")
    _, zone, read = date_arguments(Pipe("date", (form, *others), str))
    return partial(_format, _zone(zone), _reader(read) if declared else _time, *_formatter(form))


def _format(
    zone: tzinfo, read: Callable[[str], datetime], layout: str, fields: Callable[[datetime], Any], value: str | datetime
) -> str:
    time = value if isinstance(value, datetime) else read(value)
    if time.tzinfo is not zone:
        try:
            time = time.astimezone(zone)
        except OverflowError:
            raise UnfitError("is not between the years 1 and 9999") from None
    return str(layout % fields(time))


_DIGITS = {"Y": 4, "G": 4, "j": 3, "f": 6, "u": 1}
"""Of a code; others have 2."""


def _reader(declared: str) -> Callable[[str], datetime]:
    """Return the function that reads a time: one of `_READERS`, or a format. Not strptime, which accepts less."""
    if declared in _READERS:
        return _READERS[declared]
    codes = codes_of(declared)
    if not any(set(codes) == set(order[: len(codes)]) for order in _ORDERS) or not codes:
        raise LanguageError(
            f"from={declared} is neither seconds, milliseconds, ulid nor a format of a time, such as from=%Y%m%d: it needs "
            "the year and each unit down to the smallest, each once"
        )

    def piece(match: re.Match[str]) -> str:
        code = match[0][1:]
        return "%" if code == "%" else f"([0-9]{{{_DIGITS.get(code, 2)}}})" if code else re.escape(match[0])

    pattern = re.compile(re.sub("%.|.", piece, declared, flags=re.DOTALL))

    def read(text: str) -> datetime:
        match = pattern.fullmatch(text)
        if match is None:
            raise UnfitError(f"is not written as {declared}")
        part = {code: int(digits) for code, digits in zip(codes, match.groups(), strict=True)}
        clock = timedelta(
            hours=part.get("H", 0), minutes=part.get("M", 0), seconds=part.get("S", 0), microseconds=part.get("f", 0)
        )
        try:
            if part.get("H", 0) > 23 or part.get("M", 0) > 59 or part.get("S", 0) > 59:
                raise ValueError
            if "G" in part:
                day = datetime.fromisocalendar(part["G"], part.get("V", 1), part.get("u", 1))
            else:
                day = datetime(part["Y"], part.get("m", 1), part.get("d", 1)) + timedelta(days=part.get("j", 1) - 1)
                if "j" in part and (part["j"] == 0 or day.year != part["Y"]):
                    raise ValueError
        except (ValueError, OverflowError):
            raise UnfitError("is not a time that exists") from None
        return day.replace(tzinfo=UTC) + clock

    return read


def _formatter(pattern: str) -> tuple[str, Callable[[datetime], Any]]:
    """Return a `%` format and the functions of its fields. Not strftime, which depends on locale and platform."""
    for code in re.findall("(?s)%(.?)", pattern):
        if code != "%" and code not in _CODES:
            known = " ".join(f"%{known}" for known in _CODES)
            raise LanguageError(f"date does not support %{code}; it supports {known} %%")
    layout = re.sub("%(.)", lambda match: _CODES[match[1]][0] if match[1] != "%" else "%%", pattern)
    readers = [_CODES[code][1] for code in codes_of(pattern)]
    if not readers:
        raise LanguageError(f"date needs a format with at least one code, as in date(%Y-%m-%d), not {pattern!r}")
    if len(readers) == 1:
        return layout, readers[0]
    return layout, lambda time: tuple([read(time) for read in readers])


# Periods: the texts of `date` for all times between two


_DAY = 86_400
_UNITS = {
    "Y": 180 * _DAY,
    "m": 14 * _DAY,
    "V": 3 * _DAY,
    "j": _DAY / 2,
    "d": _DAY / 2,
    "u": _DAY / 2,
    "H": 1800,
    "M": 30,
    "S": 0.5,
}
"""By the finest code of a format: seconds that are less than its shortest period."""
_ORDERS = ("YmdHMSf", "YjHMSf", "GVuHMSf")


def monotone(pipes: Sequence[Pipe]) -> bool:
    """Return whether a later time never has a lesser text: `date` with the greatest unit first.

    In a zone with clock changes, an hour may come twice: only whole days are in order there.
    """
    if len(pipes) != 1 or pipes[0].name != "date":
        return False
    pattern, zone, declared = date_arguments(pipes[-1])
    codes = codes_of(pattern)
    if "f" in codes or not any(order.startswith(codes) for order in _ORDERS):
        return False
    if declared not in ("", *_READERS) and not any(order.startswith(codes_of(declared)) for order in _ORDERS):
        return False
    return zone in ("UTC", "Etc/UTC") or codes[-1] not in "HMS"


def codes_of(pattern: str) -> str:
    """Return the codes of a format, in order."""
    return "".join(re.findall(r"%(.)", pattern)).replace("%", "")


_BEGINNING = re.compile(
    r"([0-9]{4})(?:-?(0[1-9]|1[0-2])(?:-?([0-3][0-9])"
    r"(?:[T ]([0-2][0-9])(?::?([0-5][0-9])(?::?([0-5][0-9])(?:[.,][0-9]+)?)?)?)?)?)?"
)
"""A time in ISO 8601 without an offset, or the beginning of one: `2026`, `2026-04`, `2026-04-30T10`."""


def begins_time(text: str) -> bool:
    """Return whether a text is a time without an offset, or the beginning of one.

    As an upper bound, it includes all that begins with it.
    """
    return _BEGINNING.fullmatch(text) is not None


def _time_of_bound(text: str, *, last: bool) -> datetime:
    """Return the first or the last time that a bound may admit.

    A bound without an offset is compared with times as they are written. Their offsets, which it does not show, are from
    -12 to +14 hours.
    """
    match = _BEGINNING.fullmatch(text)
    if match is None or (text.isdigit() and len(text) != 4):
        return _time(text)
    parts = [int(part) for part in match.groups() if part is not None]
    try:
        time = datetime(*(*parts, 1, 1)[: max(3, len(parts))], tzinfo=UTC)  # type: ignore[misc, arg-type]
        if not last:
            return time - timedelta(hours=14)
        if len(parts) == 1:
            time = time.replace(year=time.year + 1)
        elif len(parts) == 2:
            time = (time + timedelta(days=31)).replace(day=1)
        else:
            time += timedelta(**{("days", "hours", "minutes", "seconds")[len(parts) - 3]: 1})
        return time + timedelta(hours=12, microseconds=-1)
    except ValueError:
        raise UnfitError("is not a time that exists") from None
    except OverflowError:
        raise UnfitError("is not between the years 1 and 9999") from None


def periods(pipes: Sequence[Pipe], first: str, last: str | datetime, most: int) -> list[str]:
    """Return the texts of all periods between two bounds, the first one first; the pipes must be `monotone`.

    Raises UnfitError if a bound does not fit, or if there are more than `most` periods.
    """

    def time_of(value: str | datetime, *, last: bool) -> datetime:
        if isinstance(value, datetime):
            return value
        declared = date_arguments(pipes[-1])[2]
        return _reader(declared)(value) if declared else _time_of_bound(value, last=last)

    start, end = time_of(first, last=False), time_of(last, last=True)
    step = timedelta(seconds=period_step(pipes))
    texts: dict[str, None] = {}
    time = start
    while time < end:
        texts[pipes[-1].apply(time)] = None
        if len(texts) > most:
            raise UnfitError(f"is more than {most} periods away")
        time += step
    if start <= end:
        texts[pipes[-1].apply(end)] = None
    return list(texts)


def period_step(pipes: Sequence[Pipe]) -> float:
    """Return seconds that are less than the shortest period of `monotone` pipes."""
    return _UNITS[codes_of(pipes[-1].arguments[0])[-1]]


def _zone(name: str) -> tzinfo:
    if name in ("UTC", "Etc/UTC"):
        return UTC
    # costs milliseconds of a cold start, and most rules need only UTC
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        known = available_timezones()
        absent = "" if known else "; this machine has no time zones, install the package tzdata"
        message = f'unknown time zone "{name}"{suggest(name, known)}, write an IANA name such as Europe/Berlin{absent}'
        raise LanguageError(message) from None


PIPES: dict[str, tuple[str, int, int, Callable[..., Callable[[Any], Any]]]] = {
    "pad": ("pad(n), n the number of digits", 1, 1, _pad),
    "invert": ("invert(n), n the number of digits", 1, 1, _invert),
    "date": (
        "date(format), with a zone and the format of the value if needed, as in date(%Y-%m, Europe/Berlin, from=%Y%m%d)",
        1,
        3,
        _date,
    ),
    "bucket": ("bucket(n), n the number of buckets", 1, 1, _bucket),
    "lower": ("lower, without arguments", 0, 0, lambda: str.lower),
    "upper": ("upper, without arguments", 0, 0, lambda: str.upper),
    "default": ("default(text), the text if the value is missing", 1, 1, lambda text: str),
    "truncate": ("truncate(n), n the number of characters", 1, 1, _truncate),
}
"""By name: form, least and greatest number of arguments, and the function that makes the pipe."""
