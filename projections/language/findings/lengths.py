"""Keys that can exceed DynamoDB's limits: 2048 bytes for a partition key, 1024 for a sort key."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.findings.facts import Facts, KeySet, Made, Slot
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import LONG_KEY, Severity
from projections.language.findings.numbers import Numbers
from projections.language.pipes import Pipe
from projections.language.syntax import steps

__all__ = ["LONG_TEXTS", "lengths"]

_SEVERAL = 3
LONG_TEXTS = frozenset({
    "title", "text", "body", "description", "content", "contents", "message", "comment", "note", "notes", "summary", "bio",
    "abstract", "caption", "subject", "address", "url", "uri", "link", "path", "filename", "filepath", "query", "question",
    "answer", "review",
})  # fmt: skip
"""Names of texts of any length."""


def lengths(facts: Facts) -> Iterator[Remark]:
    """Yield at most one remark for each key attribute that a rule makes."""
    numbers = Numbers(facts)
    for key in (*facts.target_keys.values(), *facts.index_keys):
        for made, most in key.made:
            if made.kind == "S":
                yield from _made(facts, numbers, key, made, most)


def _made(facts: Facts, numbers: Numbers, key: KeySet, made: Made, most: int) -> Iterator[Remark]:
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
    free = [slot for slot in made.slots if _is_free(facts, numbers, key, slot)]
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


def _is_free(facts: Facts, numbers: Numbers, key: KeySet, slot: Slot) -> bool:
    """Return whether nothing limits the length of a value: no pipe, no listed values, and it is not part of a key."""
    return not (
        slot.origin == "key"
        or (slot.expression is not None and slot.expression.type == "N")
        or slot.piped("truncate", "pad", "invert", "date", "bucket") is not None
        or slot.name in key.listed
        or (slot.name in facts.identifiers and not slot.star)
        or numbers.number(key.source, slot.name)
        or numbers.used_as_number(key.source, slot.name)
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
    widths = [_width(pipe) for pipe in slot.pipes]
    return min((width for width in widths if width is not None), default=0)


def _width(pipe: Pipe) -> int | None:
    match pipe.name:
        case "truncate":
            return 4 * int(pipe.arguments[0])
        case "pad" | "invert":
            return int(pipe.arguments[0])
        case "bucket":
            return len(pipe.arguments[0])
    return None
