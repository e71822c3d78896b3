"""Conditions that never match, or compare text that was probably meant as something else; values of held rules; and
quotients with too many digits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from projections.language.arithmetic import Constant, Expression, Factor, Node, Operation
from projections.language.attribute_types import Types, types_of
from projections.language.facts import inputs
from projections.language.findings.kinds import NEVER_MATCHES, READ_AS_WRITTEN, READS_HELD, UNROUNDED_QUOTIENT, Remark
from projections.language.findings.reads import Tested, expressions, offset_of, reads, tests
from projections.language.findings.rule_facts import Facts
from projections.language.patterns import Pattern
from projections.language.patterns.parsing import is_comparison
from projections.language.patterns.tree import Affix, Alternative, AnythingBut, Compares, Equals, compared_type
from projections.language.syntax import LanguageError, Location, steps
from projections.language.templates import Template
from projections.language.values import number_text


def conditions(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each condition whose alternatives all have the wrong type, and for texts that mean something."""
    types, booleans = types_of(facts.rules), _booleans(facts)
    for tested in tests(facts.rules):
        number = types.number(tested.entity, tested.test.name)
        if number is None and all(map(_is_quoted_number, tested.test.alternatives)):
            number = types.calculated(tested.entity, tested.test.name)
        text = types.text(tested.entity, tested.test.name)
        alternatives = tested.test.alternatives
        kinds = {compared_type(alternative) for alternative in alternatives}
        if number is not None and kinds <= {"S"}:
            yield _remark(tested, "a number", number, "text", _as_number(alternatives))
        elif text is not None and kinds <= {"N"}:
            yield _remark(tested, "text", text, "a number", "compare it with text, in quotes")
        elif (
            alternatives and all(map(_is_boolean_text, alternatives)) and (tested.entity, tested.test.name) in booleans
        ):
            why_boolean = booleans[tested.entity, tested.test.name]
            yield _remark(tested, "a boolean", why_boolean, "text", "remove the quotes, and write it in lower case")
        elif (
            number is not None
            and (exclusions := _exclusions(alternatives))
            and {*map(compared_type, exclusions)} == {"S"}
        ):
            reason = f"{tested.test.name} is a number ({number}), so `anything-but` text excludes nothing"
            yield Remark(NEVER_MATCHES, tested.place, reason, _as_number(exclusions), at_key=True)
        elif alternatives and all(why := [_differing(types, tested, alternative) for alternative in alternatives]):
            yield Remark(NEVER_MATCHES, tested.place, f"{why[0]}, so the comparison never matches", _SAME, at_key=True)
    for computed in expressions(facts.rules):
        for path in (factor.path for factor in computed.expression.factors if factor.as_text):
            if why_number := types.number(computed.entity, path) or types.calculated(computed.entity, path):
                way, offset = f"write number({path})", max(computed.text.find("text("), 0)
                reason = f"{path} is a number ({why_number}), which text({path}) rejects"
                yield Remark(NEVER_MATCHES, computed.place, reason, way, offset)
    for document, place in _all_patterns(facts):
        for text, at, sign in _texts(document, place):
            if sign and (name := _name(text)) is not None:
                yield _name_as_text(text, name, at, sign)
            elif (meant := _meant(text) if sign else _wildcard(text)) is not None:
                instead = f"write the opposite of {meant}" if sign == "!=" else f"write {meant}"
                yield Remark(READ_AS_WRITTEN, at, f'"{text}" is compared as text, as it stands', instead)
            elif sign and text.lower() in BOOLEANS:
                yield boolean(text, at)
            elif sign and text in ("None", "nil", "undefined"):
                reason = f"{text} is text, and not null"
                instead = f'write [null, {{exists: false}}], or "{text}" in quotes'
                yield Remark(READ_AS_WRITTEN, at, reason, instead, rated="note", unquoted=True)


def elements(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each path through a list of maps: such a path has no value."""
    rules = ((name, rule.source, rule.each) for name, rule in facts.variants)
    lists = {(source, each.path): name for name, source, each in rules if each is not None and not each.ancestors}
    for read in dict.fromkeys(reads(facts.rules)):
        for (entity, path), name in lists.items():
            rest = read.name.removeprefix(path + ".")
            if read.entity == entity and rest != read.name and not steps(rest)[0].isdecimal():
                yield Remark(
                    NEVER_MATCHES,
                    read.place,
                    f"{path} is a list (rule {name} reads its elements), so {read.name} has no value",
                    f"use each: {{element: {path}}} and element.{rest}, or {path}.0.{rest} for the first element",
                    read.offset,
                    read.at_key,
                )


def _booleans(facts: Facts) -> dict[tuple[str, str], str]:
    """Return why attributes of entities are booleans: rules set them so, or compare them with true or false."""
    reasons = {
        (tested.entity, tested.test.name): f"rule {tested.rule} compares it with one"
        for tested in tests(facts.rules)
        if any(isinstance(getattr(alternative, "value", None), bool) for alternative in tested.test.alternatives)
    }
    for name, rule in facts.projections.items():
        for attribute, result in rule.action.results(facts.rules, rule).items():
            if result.type == "BOOL":
                reasons[rule.into, attribute] = f"rule {name} sets it"
    return reasons


def _is_boolean_text(alternative: Alternative) -> bool:
    value = getattr(alternative, "value", None)
    return isinstance(value, str) and value.lower() in ("true", "false")


def _exclusions(alternatives: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    """Return what `anything-but` excludes; empty if there is another alternative."""
    if not all(isinstance(alternative, AnythingBut) for alternative in alternatives):
        return ()
    return tuple(
        each for alternative in alternatives if isinstance(alternative, AnythingBut) for each in alternative.excluded
    )


_SAME = "compare numbers with numbers, and text with text"


def _all_patterns(facts: Facts) -> Iterator[tuple[Mapping[str, Any], Location]]:
    for name, rule in facts.variants:
        for part in rule.parts():
            if isinstance(part.value, Pattern):
                yield part.value.document, ("projections", name, *part.place)
    for name, entity in facts.rules.entities.items():
        if entity.match is not None:
            yield entity.match.document, ("entities", name, "match")
    for name, query in facts.rules.queries.items():
        if query.where is not None:
            yield query.where.document, ("queries", name, "where")


def _texts(form: Any, place: Location, sign: str = "=") -> Iterator[tuple[str, Location, str]]:
    """Yield each text of a pattern that is compared as a whole, or by prefix or suffix, with its place.

    The sign is `=` or `!=`, and empty for a prefix or suffix.
    """
    if isinstance(form, Mapping):
        for key, value in form.items():
            if not is_comparison(key):
                operator = isinstance(place[-1], int) or place[-1] == "anything-but"
                yield from _texts(value, (*place, key), _OF_OPERATOR.get(key, sign) if operator else sign)
    elif isinstance(form, list):
        for position, value in enumerate(form):
            yield from _texts(value, (*place, position), sign)
    elif isinstance(form, str) and place[-2:-1] != ("numeric",):
        yield form, place, sign


_OF_OPERATOR = {"anything-but": "!=", "prefix": "", "suffix": ""}


def _name_as_text(text: str, name: str, place: Location, sign: str) -> Remark:
    compared, literal = f'{{"{sign}": "{text}"}}', f'{{"{sign}": "{{{text}}}"}}'
    return Remark(
        NEVER_MATCHES,
        place,
        f'"{text}" is text with braces here, not the value of {name}',
        f"write {compared} to compare with {name}, or {literal} for the text",
    )


_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
_SIGN = re.compile(r"(<=|>=|<>|!=|==|=|<|>|!|NOT(?= ))\s*['\"]?(\w[\w .:@-]*)['\"]?")
_WORDS = re.compile(
    r"(?:(not )?in *[(\[](.+)[)\]]|(begins|starts|ends) with (\S+)|between (\S+) and (\S+))", re.IGNORECASE
)
_OPERATOR = re.compile(r"(prefix|suffix|exists|anything-but|numeric) ?: ?(.+)")
_ANCHORS = re.compile(r"(\^?)([a-z][\w-]{2,})(\$?)")
_REGEX = re.compile(r"\.[*+]|.*\[\w-\w[^\]]*\][*+?{$].*|\^?\((?:[\w-]+\|)+[\w-]+\)\$?")
_WILD = re.compile(r"[\w.#@/ -]*[^\W_]{2}[\w.#@/ -]*")
_PRESENT = {
    **dict.fromkeys(("exists", "not null", "is not null", "not empty", "is not empty"), "true"),
    **dict.fromkeys(("not exists", "is null", "is empty"), "false"),
}
BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""What YAML 1.1 reads as booleans, and YAML 1.2 as text."""


def _meant(text: str) -> str | None:
    """Return the form of a text that looks like an operator or a wildcard; None for any other text."""
    if text.lower() in _PRESENT:
        return f"[{{exists: {_PRESENT[text.lower()]}}}]"
    if (found := _SIGN.fullmatch(text.strip())) is not None:
        sign, operand = found.groups()
        if sign in ("=", "=="):
            return f"[{operand}]"
        if sign in ("!", "!=", "<>", "NOT"):
            return f"[{{anything-but: {operand}}}]"
        return f'{{"{sign}": {operand}}}' if operand[0].isdecimal() else None
    if (found := _OPERATOR.fullmatch(text)) is not None:
        return f"[{{{found[1]}: {found[2]}}}]"
    if re.fullmatch(r"\w+(?: *\|\| *\w+)+", text):
        return f"[{', '.join(part.strip() for part in text.split('||'))}]"
    if (found := _WORDS.fullmatch(text)) is not None:
        negated, values, where, part, least, most = found.groups()
        if values:
            return f"[{{anything-but: [{values}]}}]" if negated else f"[{values}]"
        if least:
            return f'{{">=": {least}, "<=": {most}}}'
        return f"[{{{'suffix' if where.lower() == 'ends' else 'prefix'}: {part}}}]"
    return _wildcard(text)


def _wildcard(text: str) -> str | None:
    if (anchored := _ANCHORS.fullmatch(text)) is not None and (anchored[1] or anchored[3]):
        if anchored[1] and anchored[3]:
            return f"[{anchored[2]}]"
        return f"[{{{'prefix' if anchored[1] else 'suffix'}: {anchored[2]}}}]"
    if _REGEX.fullmatch(text):
        return _NO_WILDCARDS
    plain = text.replace(".*", "*")
    if re.fullmatch(r"%?[^\W\d]{3,}%?", text):
        plain = text.replace("%", "*")  # of SQL
    core = plain.strip("^$*")
    if "*" not in plain or _WILD.fullmatch(core.replace("*", "")) is None:
        return None
    if "**" in text:
        return None  # a mark of emphasis
    if "*" not in core and plain.endswith("*") != plain.startswith("*"):
        return f"[{{{'prefix' if plain.endswith('*') else 'suffix'}: {core}}}]"
    return _NO_WILDCARDS


_NO_WILDCARDS = (
    "[{prefix: …}] or [{suffix: …}], there are no wildcards; or let the application set an attribute to test"
)


def boolean(text: str, place: Location) -> Remark:
    """Return a remark about a boolean of YAML 1.1 without quotes."""
    reason = f"{text} is text in YAML 1.2, and no boolean"
    instead = f'write {BOOLEANS[text.lower()]}, or "{text}" in quotes for the text'
    return Remark(READ_AS_WRITTEN, place, reason, instead, rated="note", unquoted=True)


def _name(value: str) -> str | None:
    """Return the name in `{name}`; None for any other text."""
    if not value.startswith("{"):
        return None
    try:
        return Template.parse(value).single
    except LanguageError:
        return None


def _remark(tested: Tested, is_: str, why: str, compared: str, instead: str) -> Remark:
    return Remark(
        NEVER_MATCHES,
        tested.place,
        f"{tested.test.name} is {is_} ({why}), so a comparison with {compared} never matches",
        instead,
        at_key=True,
    )


def _is_quoted_number(alternative: Alternative) -> bool:
    if isinstance(alternative, AnythingBut):
        return all(map(_is_quoted_number, alternative.excluded))
    values = constants_of(alternative)
    return all(isinstance(value, str) and _NUMBER.fullmatch(value) for value in values)


def constants_of(alternative: Alternative) -> list[Any]:
    """Return what a value is compared with: constants, and the names of other values."""
    if isinstance(alternative, Compares):
        return [operand for _, operand in alternative.bounds]
    return [alternative.text if isinstance(alternative, Affix) else getattr(alternative, "value", None)]


def _differing(types: Types, tested: Tested, alternative: Alternative) -> str:
    """Return which of the values that an alternative compares have different types; empty if none is known to."""
    if not isinstance(alternative, Compares):
        return ""
    words: dict[str, str] = {}
    for name in (tested.test.name, *alternative.names):
        number, text = types.number(tested.entity, name), types.text(tested.entity, name)
        if number is not None or text is not None:
            words.setdefault("text" if number is None else "a number", f"{name} is {{}} ({number or text})")
    constant = compared_type(alternative)
    if constant is not None:
        what, other = ("a number", "text") if constant == "N" else ("text", "a number")
        if other in words:
            return f"{words[other].format(other)}, and a constant here is {what}"
    return ", and ".join(text.format(what) for what, text in words.items()) if len(words) == 2 else ""


def _as_number(alternatives: tuple[Alternative, ...]) -> str:
    found = [
        alternative.value
        for alternative in alternatives
        if isinstance(alternative, Equals) and isinstance(alternative.value, str)
    ]
    try:
        texts = [number_text(Decimal(value)) for value in found]
    except ArithmeticError:
        texts = []
    if texts and len(texts) == len(alternatives):
        return f"remove the quotes: [{', '.join(texts)}]"
    return 'compare it as a number, such as [{numeric: [">=", 1]}]'


def held(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about rules that read what a held rule does not keep up to date."""
    if not any(rule.hold for rule in facts.projections.values()):
        return
    for name, given in inputs(facts.complete).items():
        for other, attributes in given.items():
            if facts.projections[name].hold or not facts.projections[other].hold:
                continue
            entity = facts.projections[other].into
            what = ", ".join(f"{entity}.{attribute}" for attribute in attributes) or f"{entity} items"
            yield Remark(
                READS_HELD,
                ("projections", name),
                f"reads {what}, which rule {other} does not keep up to date, because it is held",
                f"remove `hold` of {other}, hold {name} as well, or accept that {name} derives outdated values",
                at_key=True,
            )


def quotients(facts: Facts) -> Iterator[Remark]:
    """Yield at most one remark for each expression."""
    for name, rule in facts.projections.items():
        for part in rule.action.parts():
            if (
                not part.limit
                or not isinstance(part.value, Expression)
                or not (quotient := _unrounded(part.value.node))
            ):
                continue
            words = _words(quotient)
            why = f"{part.limit}. Other numbers are bad input: the item contributes nothing to the rule"
            yield Remark(
                UNROUNDED_QUOTIENT,
                ("projections", name, *part.place),
                f"{words or 'the quotient'} can have 38 digits, and {why}",
                f"round the quotient first{f': round({words}, 4)' if words else ''}",
                offset_of(part, next(iter(Expression("", quotient).names), "")),
            )


def _unrounded(node: Node) -> Node | None:
    """Return a quotient that may be, or be a part of, the result, and has no rounding."""
    if isinstance(node, Factor | Constant) or node.name == "round":
        return None
    if node.name == "/" and not _comes_out_even(node.inner[1]):
        return node
    return next((found for inner in node.inner if (found := _unrounded(inner)) is not None), None)


def _comes_out_even(divisor: Node) -> bool:
    """Return whether a division by this constant adds few digits: its only prime factors are 2 and 5, as in 100 or 8."""
    if not isinstance(divisor, Constant) or not isinstance(divisor.value, Decimal) or not divisor.value:
        return False
    number = int("".join(map(str, divisor.value.as_tuple().digits)))
    for prime in (2, 5):
        while number % prime == 0:
            number //= prime
    return number == 1


def _words(node: Node) -> str:
    """Return the text of a path, or of the quotient of two paths or constants."""
    if isinstance(node, Factor):
        return node.path
    if isinstance(node, Constant):
        return number_text(node.value) if isinstance(node.value, Decimal) else ""
    parts = [_words(inner) if not isinstance(inner, Operation) else "" for inner in node.inner]
    return " / ".join(parts) if node.name == "/" and all(parts) else ""
