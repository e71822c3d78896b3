"""Keys that do not sort as expected, or that can be too long: 2048 bytes for a partition key, 1024 for a sort key; and
formats of times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from projections.language.attribute_types import Types, types_of
from projections.language.findings.conditions import constants_of
from projections.language.findings.kinds import (
    DATE_FORMAT,
    DATE_ORDER,
    LONG_KEY,
    NUMBER_DOES_NOT_FIT,
    UNPADDED_NUMBER,
    Remark,
    Severity,
)
from projections.language.findings.reads import Read, reads, tests
from projections.language.findings.rule_facts import Facts, KeySet, Made, Slot
from projections.language.patterns.tree import Affix, Alternative
from projections.language.pipes import codes_of, date_arguments
from projections.language.syntax import steps
from projections.language.values import number_text

_FEW_DIGITS = 5
_SIGNIFICANCE = {"Y": 0, "G": 0, "m": 1, "j": 1, "V": 1, "d": 2, "u": 2, "H": 3, "M": 4, "S": 5, "f": 6}


def sorting(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about values in sort keys of type S."""
    types = types_of(facts.rules)
    for key in (*facts.target_keys.values(), *facts.index_keys):
        if key.rule is None or not facts.projections[key.rule].action.writes_items:
            continue
        for made in key.sort:
            if made.kind == "S":
                for slot in made.slots:
                    yield from _slot(types, key, made, slot)


def times(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about formats of `date` with codes that do not belong together, and about dates without separators."""
    read_by: dict[tuple[str, str], Read] = {}
    for read in reads(facts.rules):
        for pipe in read.field.pipes if read.field is not None else ():
            if pipe.name != "date":
                continue
            declared = date_arguments(pipe)[2]
            if not declared:
                read_by.setdefault((read.entity, read.name), read)
            for codes in (codes_of(pipe.arguments[0]), codes_of(declared)):
                reason, instead = _code_conflict(codes)
                if reason:
                    yield Remark(DATE_FORMAT, read.place, f"{pipe}: {reason}", instead, read.offset)
    for tested in tests(facts.rules):
        dated = read_by.get((tested.entity, tested.test.name))
        compact = next(filter(None, map(_compact, tested.test.alternatives)), None)
        if dated is not None and compact is not None:
            form = {4: "%Y", 6: "%Y%m"}.get(len(compact), "%Y%m%d")
            yield Remark(
                DATE_FORMAT,
                tested.place,
                f"{compact} is a date without separators, and rule {dated.rule} reads {tested.test.name} with `date`, which "
                "takes times in ISO 8601 or seconds since 1970: such values are bad input",
                f"compare with a value in the format of the items, or declare the format: date(…, from={form})",
                at_key=True,
            )


def _code_conflict(codes: str) -> tuple[str, str]:
    """Return why these codes do not belong together, and what to write; empty if they do."""
    if "M" in codes and "H" not in codes:
        return "%M is the minute, and there is no hour", "write %m for the month"
    if "V" in codes and "G" not in codes:
        return "%V is the week of ISO 8601, whose year differs from %Y around New Year", "write %G-W%V"
    if "G" in codes and "V" not in codes:
        return "%G is the year of weeks, which differs from %Y around New Year", "write %Y for the year of months"
    return "", ""


_COMPACT = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])?")


def _compact(alternative: Alternative) -> str | None:
    """Return a date without separators that an alternative compares; None if it has none. A text 2026 begins a time."""
    matches = (
        _COMPACT.match if isinstance(alternative, Affix) and alternative.operator == "prefix" else _COMPACT.fullmatch
    )
    for value in constants_of(alternative):
        text = number_text(value) if isinstance(value, Decimal) else value
        if isinstance(text, str) and (matches(text) or (text != value and re.fullmatch(r"(?:19|20)\d\d", text))):
            return text
    return None


def _slot(types: Types, key: KeySet, made: Made, slot: Slot) -> Iterator[Remark]:
    if pipe := slot.piped("date"):
        order = [_SIGNIFICANCE[code] for code in codes_of(pipe.arguments[0])]
        if order != sorted(order):
            yield Remark(
                DATE_ORDER,
                slot.place,
                f"{made.attribute} sorts as text, and {pipe} does not put the greatest unit first: "
                f"the items are not in the order of time",
                "write the year first and the smallest unit last, as date(%Y-%m-%d)",
                slot.offset,
            )
        return
    padded = slot.piped("pad", "invert")
    if padded is not None:
        yield from _padded(types, key, made, slot, int(padded.arguments[0]))
        return
    if slot.piped("bucket") is not None:
        return
    if slot.expression is not None:
        yield from _calculated(key, made, slot)
        return
    certain = types.number(key.source, slot.name)
    why = certain or _used(types, key, slot)
    if why is None or slot.origin == "each":
        return
    if types.function(key.source, slot.name) in ("avg", "negative", "computed"):
        instead = _as_number(key, made)
    else:
        instead = f"write {slot.rewritten('pad(10)')}, or invert(10) for the greatest first"
    yield Remark(
        UNPADDED_NUMBER,
        slot.place,
        f"{made.attribute} sorts as text, and {slot.name} {'is' if certain else 'seems to be'} a number ({why}): "
        f"10 would come before 9",
        instead,
        slot.offset,
        rated="warning" if certain else "note",
    )


def _used(types: Types, key: KeySet, slot: Slot) -> str | None:
    """Return why a value seems to be a number whose number of digits varies."""
    return None if types.is_time(key.source, slot.name) else types.used_as_number(key.source, slot.name)


def _calculated(key: KeySet, made: Made, slot: Slot) -> Iterator[Remark]:
    """Yield a remark for a calculation without padding."""
    if slot.is_calculated and slot.origin != "each":
        yield Remark(
            UNPADDED_NUMBER,
            slot.place,
            f"{made.attribute} sorts as text, and {slot} is computed as a number: 10 would come before 9",
            f"for whole numbers of 0 or more, add a pipe: {slot.rewritten('pad(10)')}; for others, {_as_number(key, made)}",
            slot.offset,
            rated="warning",
        )


def _padded(types: Types, key: KeySet, made: Made, slot: Slot, digits: int) -> Iterator[Remark]:
    if slot.expression is not None and slot.expression.is_quotient and slot.pipes[0].name in ("pad", "invert"):
        yield Remark(
            NUMBER_DOES_NOT_FIT,
            slot.place,
            f"{slot.name} is a quotient, which is seldom whole, and pad and invert take whole numbers of 0 or more: "
            "all other values are bad input, and the rule does nothing for them",
            f"round it: round({slot.name})",
            slot.offset,
        )
    function = types.function(key.source, slot.name)
    what = {"avg": "an average, which is seldom whole", "negative": "a sum of negative amounts"}.get(function)
    if what is not None:
        yield Remark(
            NUMBER_DOES_NOT_FIT,
            slot.place,
            f"{slot.name} is {what}, and pad and invert take whole numbers of 0 or more: "
            f"all other values are bad input, and the rule does nothing for them",
            _as_number(key, made),
            slot.offset,
        )
    elif function == "count" and digits < _FEW_DIGITS:
        yield Remark(
            NUMBER_DOES_NOT_FIT,
            slot.place,
            f"{slot.name} is a count, and {digits} digits end at {10**digits - 1:,}: "
            f"a higher count is bad input, and the rule does nothing for the item",
            "use 10 digits",
            slot.offset,
            rated="note",
        )


def _as_number(key: KeySet, made: Made) -> str:
    if key.index is None:
        return "leave it out of the key, or copy it into an index whose sort key is a number"
    return f"declare {made.attribute} with type N under `indexes`, and use only this variable in its template"


_SEVERAL = 3
LONG_TEXTS = frozenset({
    "title", "text", "body", "description", "content", "contents", "message", "comment", "note", "notes", "summary", "bio",
    "abstract", "caption", "subject", "address", "url", "uri", "link", "path", "filename", "filepath", "query", "question",
    "answer", "review",
})  # fmt: skip
"""Names of texts of any length."""


def lengths(facts: Facts) -> Iterator[Remark]:
    """Yield at most one remark for each key attribute that a rule makes."""
    types = types_of(facts.rules)
    for key in (*facts.target_keys.values(), *facts.index_keys):
        for made, most in key.made:
            if made.kind == "S":
                yield from _made(facts, types, key, made, most)


def _made(facts: Facts, types: Types, key: KeySet, made: Made, most: int) -> Iterator[Remark]:
    if made.literal_bytes > most:
        yield _remark(
            made,
            "error",
            f"{made.attribute} has {made.literal_bytes:,} bytes of constant text, and its limit is {most:,}",
            "shorten the text",
        )
        return
    if made.literal_bytes > most // 2:
        yield _remark(
            made,
            "warning",
            f"{made.attribute} has {made.literal_bytes:,} bytes of constant text, which leaves "
            f"{most - made.literal_bytes:,} of {most:,} for its values",
            "shorten the text",
        )
        return
    free = [slot for slot in made.slots if _is_free(facts, types, key, slot)]
    long = [slot for slot in free if slot.star or not LONG_TEXTS.isdisjoint(map(_last, slot.names))]
    if long or len(free) >= _SEVERAL:
        slot = (long or free)[0]
        share = (most - made.literal_bytes) // (4 * len(free))
        names = " and ".join(str(one) for one in (long or free))
        yield _remark(
            made,
            "note",
            f"{names} can have any length, but {made.attribute} has at most {most:,} bytes: "
            f"if the key is longer, the rule does nothing, and the record is quarantined",
            f"write {slot.rewritten(f'truncate({_round(share)})')} if that can happen",
            slot,
        )
        return
    cut = [(slot, pipe) for slot in made.slots if (pipe := slot.piped("truncate"))]
    greatest = made.literal_bytes + sum(_most_bytes(slot) for slot in made.slots)
    if cut and greatest > most:
        slot, pipe = cut[-1]
        fits = (most - greatest + 4 * int(pipe.arguments[0])) // 4
        yield _remark(
            made,
            "note",
            f"truncate counts characters, of up to 4 bytes each: {made.attribute} could have {greatest:,} bytes, "
            f"and its limit is {most:,}",
            f"truncate({fits}) always fits" if fits > 0 else "shorten the other values as well",
            slot,
        )


def _remark(made: Made, severity: Severity, reason: str, instead: str, slot: Slot | None = None) -> Remark:
    place, offset = (made.place, None) if slot is None else (slot.place, slot.offset)
    return Remark(LONG_KEY, place, reason, instead, offset, rated=severity)


def _is_free(facts: Facts, types: Types, key: KeySet, slot: Slot) -> bool:
    """Return whether nothing limits the length of a value: no pipe, no listed values, and it is not part of a key."""
    return not (
        slot.origin == "key"
        or slot.is_calculated
        or slot.piped("truncate", "pad", "invert", "date", "bucket") is not None
        or slot.name in key.listed
        or (slot.name in facts.identifiers and not slot.star)
        or types.number(key.source, slot.name)
        or _used(types, key, slot)
    )


def _last(name: str) -> str:
    return steps(name)[-1].lower()


def _round(characters: int) -> int:
    """Return a round number of characters, at most this many."""
    for step in (100, 50, 10):
        if characters >= step:
            return characters // step * step
    return max(characters, 1)


def _most_bytes(slot: Slot) -> int:
    """Return the greatest number of bytes of a value; 0 if it is unknown, so that nothing is reported."""
    widths = {"truncate": 4, "pad": 1, "invert": 1}
    most = [widths[pipe.name] * int(pipe.arguments[0]) for pipe in slot.pipes if pipe.name in widths]
    return min([*most, *(len(pipe.arguments[0]) for pipe in slot.pipes if pipe.name == "bucket")], default=0)
