"""Expressions in generated code: names, literals, layout as ruff and Black do it, texts of keys, conditions of patterns."""

from __future__ import annotations

import builtins
import keyword
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias, assert_never

from projections.language.access.plan import Periods
from projections.language.patterns.tree import (
    Affix,
    Alternative,
    AnythingBut,
    Compares,
    Condition,
    Either,
    Equals,
    Exists,
    Named,
    Test,
)
from projections.language.pipes import Pipe, date_arguments, period_step
from projections.language.syntax import root, steps
from projections.printable import printable

WIDTH = 88
"""Columns of the generated code, as ruff and Black have them by default."""


class Names:
    """The names of one scope. `take` returns one that is not taken, not reserved, and a valid identifier."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = {*reserved, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}

    def take(self, wanted: str) -> str:
        name = wanted
        number = 2
        while name in self._taken:
            name = f"{wanted}_" if number == 2 else f"{wanted}_{number}"
            number += 1
        self._taken.add(name)
        return name


def _identifier(text: str) -> str:
    """Return the text with underscores for characters that an identifier cannot have. Python compares names by NFKC."""
    letters = [letter if f"x{letter}".isidentifier() else "_" for letter in unicodedata.normalize("NFKC", text)]
    name = unicodedata.normalize("NFKC", re.sub("_+", "_", "".join(letters)).strip("_"))
    return name if name.isidentifier() else f"x{name}"


def snake(text: str) -> str:
    """Return a name of functions and variables: `postsOf` becomes `posts_of`, `GSI1PK` becomes `gsi1_pk`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return _identifier(apart.lower())


def pascal(text: str) -> str:
    """Return a name of a class: `postMeta` becomes `PostMeta`."""
    name = _identifier("_".join(part[:1].upper() + part[1:] for part in re.split(r"\W+|_+", text) if part))
    return name.replace("_", "")


def constant(text: str) -> str:
    """Return a name of a constant: `postMeta` becomes `POST_META`."""
    return snake(text).upper()


def literal(text: str) -> str:
    """Return a text as Python source, in double quotes unless it contains some."""
    quote = "'" if '"' in text and "'" not in text else '"'
    return quote + _source(text, quote) + quote


def inside(text: str) -> str:
    """Return a text as a literal part of an f-string in double quotes."""
    return _source(text, '"').replace("{", "{{").replace("}", "}}")


_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _source(text: str, quote: str) -> str:
    known = {**_SHORT, quote: "\\" + quote}
    return "".join(known.get(letter) or (letter if printable(letter) == letter else _escape(letter)) for letter in text)


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def docstring(indent: int, *paragraphs: str) -> list[str]:
    """Return the lines of a docstring, wrapped. The texts may be anything."""
    margin = " " * indent
    texts = [_docstring_line(paragraph) for paragraph in paragraphs if paragraph]
    if len(texts) == 1 and len(margin) + len(texts[0]) + 6 <= WIDTH:
        return [f'{margin}"""{texts[0]}"""']
    lines: list[str] = []
    # `ruff format` joins the closing quotes with a single line, even if it is then too long.
    width = WIDTH - indent - 3 * (len(texts) == 1)
    for number, paragraph in enumerate(texts):
        lead = '"""' if number == 0 else ""
        wrapped = textwrap.wrap(lead + paragraph, width, break_long_words=False, break_on_hyphens=False)
        lines += [*([""] if number else []), *(margin + line for line in wrapped)]
    return [*lines, f'{margin}"""']


def _docstring_line(text: str) -> str:
    """Return one line for a docstring, in which no quote or backslash of the text ends it."""
    line = " ".join(printable(" ".join(text.split())).replace("\\", "\\\\").replace('"""', '\\"\\"\\"').split())
    return line[:-1] + '\\"' if line.endswith('"') else line


class Call(NamedTuple):
    """Parts between brackets, separated by commas: a call, a list, a dictionary, the parameters of a function."""

    before: str
    parts: Sequence[Code]
    after: str = ")"


class Loop(NamedTuple):
    """A list comprehension: an element, and its clauses."""

    element: Code
    clauses: Sequence[str]


class Every(NamedTuple):
    """Conditions that are joined by `and`, or by another word."""

    conditions: Sequence[Code]
    word: str = "and"


Code: TypeAlias = "str | Call | Loop | Every"


def flat(expression: Code) -> str:
    """Return an expression on one line."""
    match expression:
        case str():
            return expression
        case Call(before, parts, after):
            return before + ", ".join(map(flat, parts)) + after
        case Loop(element, clauses):
            return "[" + " ".join([flat(element), *clauses]) + "]"
        case Every(conditions, word):
            return f" {word} ".join(map(flat, conditions))


def statement(before: str, expression: Code, indent: int = 4, after: str = "") -> list[str]:
    """Return the lines of an expression between two texts, such as `return` with it, on one line if it fits."""
    margin = " " * indent
    whole = f"{margin}{before}{flat(expression)}{after}"
    if len(whole) <= WIDTH or isinstance(expression, str):
        return [whole]
    deeper = indent + 4
    match expression:
        case Call(opening, parts, closing):
            if not parts:
                return [whole]
            together = " " * deeper + ", ".join(map(flat, parts))
            entries = opening.endswith("{") and len(parts) > 1
            comma = "," if len(parts) > 1 or opening.endswith(("[", "{")) or closing.startswith(")") else ""
            single = len(parts) == 1 and not isinstance(parts[0], str)
            if len(together) <= WIDTH and not entries and not (len(parts) == 1 and opening.endswith(("[", "{"))):
                body = [together + "," * (len(parts) == 1 and before.startswith("def "))]
            elif single and isinstance(parts[0], Call) and closing == "]":
                body = statement("", parts[0], deeper, ",")
            else:
                body = [line for part in parts for line in statement("", part, deeper, comma)]
            return [f"{margin}{before}{opening}", *body, f"{margin}{closing}{after}"]
        case Loop(element, clauses):
            body = [*statement("", element, deeper), *(" " * deeper + clause for clause in clauses)]
            return [f"{margin}{before}[", *body, f"{margin}]{after}"]
        case Every():
            return _condition_lines(expression, indent, before, after)


_CALL = re.compile(r"(\w+\()(.*)(\))")
_QUOTED = re.compile(r"""(["'])(?:(?!\1)[^\\]|\\.)*\1""")


def _call(source: str) -> Code:
    """Return a call that is one as a whole as a `Call`."""
    match = _CALL.fullmatch(source)
    if match is None:
        return source
    depth = 0
    for letter in _QUOTED.sub("", match[2]):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            return source
    return Call(match[1], [match[2]], match[3])


def _condition_lines(every: Every, indent: int, before: str, after: str) -> list[str]:
    """Return the lines of conditions that are too long for one line."""
    margin = " " * indent
    first, *rest = every.conditions
    word = f"{every.word} "
    if len(rest) == 1 and after in ("", ":"):  # as Black does: only the last call is broken
        last = _call(rest[0]) if isinstance(rest[0], str) else rest[0]
        if isinstance(last, Call) and len(margin + before + flat(first) + f" {word}" + last.before) <= WIDTH:
            opened = f"{before}{flat(first)} {word}"
            return statement(opened, last, indent, after)
    together = f"{margin}    {flat(every)}"
    if len(together) <= WIDTH:
        body = [together]
    else:
        body = [
            *statement("", first, indent + 4),
            *(line for condition in rest for line in statement(word, condition, indent + 4)),
        ]
    return [f"{margin}{before}(", *body, f"{margin}){after}"]


NUMBER, TEXT, EITHER = "int | Decimal", "str", "Scalar"


class Variable(NamedTuple):
    """A name in generated code, or an expression, and its type: `str`, `int | Decimal`, or `Scalar` for either."""

    source: str
    type: str = TEXT

    @property
    def text(self) -> str:
        return self.source if self.type == TEXT else f"_text_of({self.source})"


def apply_pipes(value: Variable, pipes: Sequence[Pipe]) -> Variable:
    """Return a value through pipes."""
    for pipe in pipes:
        value = _apply_pipe(value, pipe)
    return value


def _apply_pipe(value: Variable, pipe: Pipe) -> Variable:
    arguments = pipe.arguments
    match pipe.name:
        case "lower" | "upper":
            return Variable(f"{value.text}.{pipe.name}()")
        case "default":
            return value  # callers give a value
        case "truncate":
            return Variable(f"{value.text}[:{int(arguments[0])}]")
        case "pad" | "invert":
            return Variable(f"_{pipe.name}({value.source}, {int(arguments[0])})")
        case "bucket":
            return Variable(f"_bucket_of({value.source}, {int(arguments[0])})")
        case "date":
            return Variable(f"_format_date({', '.join([_time_of(value, pipe).source, *_format(pipe)])})")
    raise AssertionError(pipe.name)


def _time_of(value: Variable, pipe: Pipe) -> Variable:
    """Return a value as `date` takes it: as a time, if the pipe declares its format."""
    _, _, declared = date_arguments(pipe)
    if not declared:
        return value
    if declared == "ulid":
        return Variable(f"_ulid_time({value.text})", EITHER)
    if declared in ("seconds", "milliseconds"):
        return Variable(f"_since1970({value.source}, {6 if declared == 'seconds' else 3})", EITHER)
    return Variable(f"_parse_time({value.source}, {literal(declared)})", EITHER)


def _format(pipe: Pipe) -> list[str]:
    form, zone, _ = date_arguments(pipe)
    return [literal(form), *([] if zone in ("UTC", "Etc/UTC") else [literal(zone)])]


def period_list(fan: Periods, low: Variable, high: Variable) -> Call:
    """Return the expression of the periods between two bounds."""
    *before, date = fan.field.pipes
    first, last = (_time_of(apply_pipes(bound, before), date).source for bound in (low, high))
    if last != high.source:
        last = f"None if {high.source} is None else {last}"
    form, *zone = _format(date)
    step = Decimal(str(period_step(fan.field.pipes))).normalize()
    return Call("_periods_between(", [first, last, form, f"{step:f}", *zone])


def text_expression(parts: Sequence[tuple[bool, str]]) -> str:
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


class ItemNames:
    """How generated code reads the names of an entity from `item`. `variables` has the expressions of key variables."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self.used: set[str] = set()
        """The key variables that were read."""

    def value(self, name: str, *, sure: bool = False) -> str:
        """Return the expression of a value. Without `sure`, it is None or `_ABSENT` for an item without it."""
        if name in self.variables:
            self.used.add(name)
            own = self.variables[name]
            return own if own.startswith("item[") else f"item.get({literal(name)}, {own})"
        if len(steps(name)) > 1:
            return at("item", name)
        return f"item[{literal(root(name))}]" if sure else f"item.get({literal(root(name))})"

    def if_stored(self, name: str) -> str | None:
        """Return the condition that an item has a value or NULL; None if all have."""
        if name in self.variables:
            return None
        return f"{self.value(name)} is not _ABSENT" if len(steps(name)) > 1 else f"{literal(root(name))} in item"

    def if_present(self, name: str) -> str | None:
        """Return the condition that an item has a value; None if all have."""
        if name in self.variables:
            return None
        value = self.value(name)
        return f"{value} not in (None, _ABSENT)" if len(steps(name)) > 1 else f"{value} is not None"


def at(item: str, name: str) -> str:
    """Return the expression of the value at a path."""
    return f"_value_at({', '.join([item, *map(literal, steps(name))])})"


def value_literal(value: Any) -> str:
    """Return a scalar of a pattern in Python source."""
    match value:
        case None | bool():
            return repr(value)
        case str():
            return literal(value)
        case Decimal():
            return number(str(value))
    raise TypeError(type(value))


def condition_source(condition: Condition, names: ItemNames) -> str:
    """Return a condition of a pattern as Python source, which can be joined with others by `and`."""
    if isinstance(condition, Either):
        branches = [_both([condition_source(test, names) for test in branch]) for branch in condition.branches]
        return f"({' or '.join(branches)})"
    alternatives = list(_test(condition, names))
    return alternatives[0] if len(alternatives) == 1 else f"({' or '.join(alternatives)})"


def _both(conditions: list[str]) -> str:
    return conditions[0] if len(conditions) == 1 else f"({' and '.join(conditions)})"


def _test(test: Test, names: ItemNames) -> Iterator[str]:
    """Yield conditions of which one must hold."""
    alternatives = test.alternatives
    present, stored = names.if_present(test.name), names.if_stored(test.name)
    if Exists(True) in alternatives:
        yield "True" if stored is None or Exists(False) in alternatives else stored
        return
    if Exists(False) in alternatives:
        absent = f"{literal(root(test.name))} not in item"
        absent = f"{names.value(test.name)} is _ABSENT" if len(steps(test.name)) > 1 else absent
        yield "False" if stored is None else absent
    null = any(isinstance(alternative, Equals) and alternative.value is None for alternative in alternatives)
    value = at("item", test.name) if null and test.name not in names.variables else names.value(test.name)
    yield from _any_of(alternatives, value, present, names)


def _any_of(alternatives: Sequence[Alternative], value: str, present: str | None, names: ItemNames) -> Iterator[str]:
    """Yield conditions on a value: one for all that it may be equal to, and one for each other alternative."""
    equal = [value_literal(alternative.value) for alternative in alternatives if isinstance(alternative, Equals)]
    if equal:
        yield f"_is_any({', '.join([value, *equal])})"
    for alternative in alternatives:
        match alternative:
            case Equals() | Exists():
                pass  # above, and in `_test`
            case Affix():
                yield f"_any_text({value}, lambda text: {_affix(alternative)})"
            case Compares(bounds):
                pairs = [
                    (sign, names.value(x.name) if isinstance(x, Named) else value_literal(x)) for sign, x in bounds
                ]
                yield f"_compares({', '.join([value, *(f'({literal(sign)}, {x})' for sign, x in pairs)])})"
            case AnythingBut(excluded):
                fits = " or ".join(_any_of(excluded, value, present, names))
                yield f"({present} and not ({fits}))" if present else f"not ({fits})"
            case _:
                assert_never(alternative)


def _affix(affix: Affix) -> str:
    text = literal(affix.text.casefold() if affix.ignore_case else affix.text)
    subject = "text.casefold()" if affix.ignore_case else "text"
    method = {"prefix": "startswith", "suffix": "endswith"}.get(affix.operator)
    return f"{subject}.{method}({text})" if method else f"{subject} == {text}"
