"""Sort keys with an unexpected order: numbers without padding, dates that do not begin with the year."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.arithmetic import Expression
from projections.language.findings.facts import Facts, KeySet, Made, Slot
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import DATE_ORDER, NUMBER_DOES_NOT_FIT, UNPADDED_NUMBER
from projections.language.findings.numbers import Numbers

__all__ = ["sorting"]

_FEW_DIGITS = 5
_SIGNIFICANCE = {"Y": 0, "G": 0, "m": 1, "j": 1, "V": 1, "d": 2, "u": 2, "H": 3, "M": 4, "S": 5, "f": 6}


def sorting(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about values in sort keys of type S."""
    numbers = Numbers(facts)
    for key in (*facts.target_keys.values(), *facts.index_keys):
        if key.rule is None or facts.projections[key.rule].rank is not None:
            continue
        for made in key.sort:
            if made.kind == "S":
                for slot in made.slots:
                    yield from _slot(numbers, key, made, slot)


def _slot(numbers: Numbers, key: KeySet, made: Made, slot: Slot) -> Iterator[Remark]:
    if pipe := slot.piped("date"):
        order = [_SIGNIFICANCE[code] for code in _codes(pipe.arguments[0])]
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
        yield from _padded(numbers, key, made, slot, int(padded.arguments[0]))
        return
    if slot.piped("bucket", "ms", "ulid") is not None:
        return
    if slot.expression is not None:
        yield from _calculated(key, made, slot, slot.expression)
        return
    certain = numbers.number(key.source, slot.name)
    why = certain or numbers.used_as_number(key.source, slot.name)
    if why is None or slot.origin == "each":
        return
    if numbers.function(key.source, slot.name) in ("avg", "negative", "computed"):
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


def _calculated(key: KeySet, made: Made, slot: Slot, expression: Expression) -> Iterator[Remark]:
    """Yield a remark for a calculation without padding."""
    if expression.type == "N" and slot.origin != "each":
        yield Remark(
            UNPADDED_NUMBER,
            slot.place,
            f"{made.attribute} sorts as text, and {slot} is computed as a number: 10 would come before 9",
            f"for whole numbers of 0 or more, add a pipe: {slot.rewritten('pad(10)')}; for others, {_as_number(key, made)}",
            slot.offset,
            rated="warning",
        )


def _padded(numbers: Numbers, key: KeySet, made: Made, slot: Slot, digits: int) -> Iterator[Remark]:
    if slot.expression is not None and slot.expression.is_quotient and slot.pipes[0].name in ("pad", "invert"):
        yield Remark(
            NUMBER_DOES_NOT_FIT,
            slot.place,
            f"{slot.name} is a quotient, which is seldom whole, and pad and invert take whole numbers of 0 or more: "
            "all other values are bad input, and the rule does nothing for them",
            f"round it: round({slot.name})",
            slot.offset,
        )
    function = numbers.function(key.source, slot.name)
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


def _codes(form: str) -> list[str]:
    codes = []
    characters = iter(form)
    for character in characters:
        if character == "%" and (code := next(characters, "%")) != "%":
            codes.append(code)
    return codes
