"""Rewrites what the cases of a case file expect to what the rules give: items, rejections, answers and boards.

Comments and layout stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from projections.engine.store import Image, ItemKey, Value
from projections.errors import ProjectionsError, UsageError
from projections.language.editing import LayoutError, with_element, with_merged, without, without_element
from projections.language.editing import Path as Place
from projections.language.facts import EVERY, origins
from projections.language.source import read
from projections.language.syntax import suggest
from projections.local.items import in_wire_form, key_of, key_words
from projections.testing.cases import (
    Case,
    answered,
    board_words,
    cases_in,
    differing_names,
    places_of,
    rank_differences,
)
from projections.testing.comparison import Difference
from projections.testing.scenario import Scenario

__all__ = ["update"]


def update(path: Path, number: int, case: Case, scenario: Scenario) -> None:
    """Change what one case expects, so that it passes. `number` counts from 0.

    Raises UsageError, and changes nothing, if the file has something that cannot be changed alone, such as an alias, or if
    the changed case would fail.
    """
    case.write(scenario)
    original = path.read_bytes().decode("utf-8-sig")
    text = original.replace("\r\n", "\n")
    try:
        changed = _changed(text, number, case, scenario)
        if _others(text, number) != _others(changed, number):
            raise LayoutError("other parts of the file share its items by an anchor (&)")
        cases_in(changed, path).cases[number].check(scenario)
    except AssertionError as error:
        raise UsageError(
            f"{path}:{case.line}: cannot be updated: the case would still fail; change it by hand{error}"
        ) from None
    except ProjectionsError as error:
        raise UsageError(f"{path}:{case.line}: cannot be updated: {error}; change the case by hand") from None
    path.write_text(changed, encoding="utf-8", newline="\r\n" if "\r\n" in original else "\n")


def _others(text: str, number: int) -> Any:
    """Return the content of the file without what an update of a case may change."""
    data = read(text, exact=True).data
    case = data["cases"][number]
    for name in ("then", "gone", "quarantined"):
        case.pop(name, None)
    for name, part in (("asks", "gives"), ("ranks", "scores")):
        for one in case.get(name) or ():
            one.pop(part, None)
    return data


def _changed(text: str, number: int, case: Case, scenario: Scenario) -> str:
    place: Place = ("cases", number)
    listed = {key: (where, item) for key, where, item in _places(scenario, case, place, "then")}
    absent = {key: where for key, where, _ in _places(scenario, case, place, "gone")}
    removed: list[Place] = []
    added: list[tuple[str, ItemKey, Any]] = []
    differences = case.differences(scenario)
    if case.narrow and (lost := [line for one in differences if one.listed for line in _lost(scenario, one)]):
        raise UsageError("; ".join(lost))
    for difference in differences:
        key = difference.key
        if key in listed and difference.found is not None:
            text = _with_attributes(text, *listed[key], difference)
        elif key in listed and not case.narrow:
            removed.append(listed[key][0])
        elif difference.found is None:
            if key in listed:
                removed.append(listed[key][0])
            added.append(("gone", key, _plain(scenario.program.tables[key.table].wire(key))))
        else:
            if key in absent:
                removed.append(absent[key])
            item = difference.found
            if case.narrow:
                names = (*scenario.program.tables[key.table].key_attributes, *difference.compared)
                item = {name: value for name, value in item.items() if name in names}
            added.append(("then", key, _plain(item)))
    for where in sorted(removed, key=lambda where: int(where[-1]), reverse=True):
        text = without_element(text, where[:-1], int(where[-1]))
    for name, key, value in added:
        by_table = isinstance(case.content.get(name), Mapping) or len(scenario.program.tables) > 1
        text = with_element(text, (*place, name, key.table) if by_table else (*place, name), value)
    unexpected, unmet = case.rejections(scenario)
    for number in reversed(unmet):
        text = without_element(text, (*place, "quarantined"), number)
    for rejected in unexpected:
        text = with_element(text, (*place, "quarantined"), scenario.rejection(rejected))
    for number, rank in enumerate(case.content.get("ranks", ())):
        if any(rank_differences(scenario, rank)):
            scores = [score for score, _ in places_of(scenario, rank)]
            if not scores:
                raise UsageError(f"{board_words(rank)} has no scores. Correct its key, or write `scores: []`")
            text = with_merged(text, (*place, "ranks", number, "scores"), scores, whole=True)
    for number, ask in enumerate(case.content.get("asks", ())):
        text = _with_answer(text, (*place, "asks", number, "gives"), *answered(scenario, ask))
    return text


def _lost(scenario: Scenario, difference: Difference) -> Iterator[str]:
    """Yield what an update would remove from a case that compares nothing else, most often because it is misspelt.

    These are attributes that the item lacks and no rule writes, and an item that never existed.
    """
    several = len(scenario.program.tables) > 1
    item = key_words(difference.key, several=several)
    if difference.found is None:
        existed = {key_words(key, several=several) for key in scenario.existed}
        if item not in existed:
            yield f"{item} never existed{suggest(item, sorted(existed))}. {_LOST}"
        return
    written = origins(scenario.program.typed).get(difference.entity, {})
    for name in difference.compared:
        if name not in difference.found and name not in written and EVERY not in written:
            hint = suggest(name, [*written, *difference.found])
            yield f"no rule writes {name}{hint}, and {item} lacks it. {_LOST}"


_LOST = "If the update removed it, the case would assert nothing about it"


def _with_answer(text: str, where: Place, given: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """Return the text with the items of an answer, each with the attributes that were listed for it.

    An item that was not listed gets those of the one before it. Raises UsageError for an attribute that no item has.
    """
    known = {name for item in found for name in item}
    for position in reversed(range(len(found), len(given))):
        text = without_element(text, where, position)
    for position, item in enumerate(found):
        if position < len(given):
            for name in differing_names(given[position], item):
                if name in item:
                    text = with_merged(text, (*where, position, name), item[name], whole=True)
                elif name not in known:
                    raise UsageError(f"no item of the answer has {name}{suggest(name, sorted(known))}. {_LOST}")
                else:
                    text = without(text, (*where, position, name))
        else:
            names = given[-1].keys() if given else item.keys()
            text = with_element(text, where, {name: value for name, value in item.items() if name in names})
    return text


def _places(scenario: Scenario, case: Case, place: Place, name: str) -> Iterator[tuple[ItemKey, Place, Any]]:
    """Yield the keys of the items that a case lists, with their places in the file, and the items."""
    content = case.content.get(name, ())
    lists = content.items() if isinstance(content, Mapping) else [(next(iter(scenario.program.tables)), content)]
    for table, items in lists:
        inner: Place = (*place, name, table) if isinstance(content, Mapping) else (*place, name)
        for position, item in enumerate(items if items != "any" else ()):
            yield key_of(scenario.program, table, item, name), (*inner, position), item


def _with_attributes(text: str, where: Place, item: Mapping[str, Any], difference: Difference) -> str:
    """Return the text with the found attributes, in the form of the listed item."""
    found = difference.found or {}
    written = dict if in_wire_form(item) else _plain_value
    for name in difference.compared:
        if name not in found:
            text = without(text, (*where, name))
        else:
            text = with_merged(text, (*where, name), written(found[name]), whole=True)
    return text


def _plain(image: Image) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in image.items()}


def _plain_value(value: Value) -> Any:
    """Return a value as case files have it, with all digits of a number."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return Decimal(content)
        case "B":
            return {"$binary": content}
        case "NULL":
            return None
        case "L":
            return [_plain_value(element) for element in content]
        case "M":
            return _plain(content)
        case "SS":
            return {"SS": sorted(content)}
        case "NS":
            return {"NS": sorted(map(Decimal, content))}
        case "BS":
            return {"BS": [{"$binary": element} for element in sorted(content)]}
    return content
