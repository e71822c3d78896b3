"""Templates: text with variables, such as `USER#{userId}`, in two kinds.

A `Template` renders values, through pipes, into a key or an attribute. A value may be computed: `{qty * price|pad(8)}`. A
`KeyPattern` is the key of an entity and also reads the variables from a key's text, so it has neither pipes nor expressions
and must not be ambiguous.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

from projections.errors import BadInput
from projections.language.pipes import Pipe, UnfitError, absent_text, chain
from projections.language.syntax import BRACES, PATH, LanguageError, name_of, written_path
from projections.language.values import Resolver, Value, number_text, shown

if TYPE_CHECKING:
    from projections.language.arithmetic import Expression


class Field(NamedTuple):
    """One `{name|pipe|…}` of a template; `star` marks `{name*}`.

    If its value is computed, as in `{qty * price}`, it has an `expression`, and `name` is the text of it.
    """

    name: str
    pipes: tuple[Pipe, ...] = ()
    star: bool = False
    expression: Expression | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The variables and paths that it reads."""
        return (self.name,) if self.expression is None else self.expression.names

    @property
    def plain(self) -> bool:
        """Whether its text is that of the value of `name`: it has neither pipes nor an expression."""
        return not self.pipes and self.expression is None

    @property
    def needs(self) -> tuple[str, ...]:
        """The names without whose values it has no text."""
        if self.absent is not None:
            return ()
        return self.names if self.expression is None else self.expression.needs

    @property
    def suffices(self) -> tuple[str, ...] | None:
        """Names with whose values it has a text, unless one is bad input; None if no names ensure it."""
        if self.absent is not None:
            return ()
        return self.names if self.expression is None else self.expression.suffices

    @property
    def absent(self) -> str | None:
        """The text if the value is missing: that of the pipe `default`; None without it."""
        return absent_text(self.pipes)

    def __str__(self) -> str:
        name = written_path(self.name) if self.expression is None else self.name
        return "{" + "|".join([name + "*" * self.star, *map(str, self.pipes)]) + "}"


@dataclass(frozen=True)
class Template:
    """Text with variables, rendered from values. `parts` are its literal texts and fields, in order."""

    text: str
    parts: tuple[str | Field, ...]

    @classmethod
    @lru_cache(maxsize=4096)  # analyses parse the same few texts thousands of times
    def parse(cls, text: str) -> Template:
        """Parse a template. Raises LanguageError with the offset of the mistake."""
        return cls(text, tuple(_parts(text)))

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(part for part in self.parts if isinstance(part, Field))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables and dotted paths that it reads, in order, each once."""
        return tuple(dict.fromkeys(name for field in self.fields for name in field.names))

    @property
    def needs(self) -> tuple[str, ...]:
        """The names without whose values it has no text."""
        return tuple(dict.fromkeys(name for field in self.fields for name in field.needs))

    @property
    def suffices(self) -> tuple[str, ...] | None:
        """Names with whose values it has a text, unless one is bad input; None if no names ensure it."""
        needed: dict[str, None] = {}
        for field in self.fields:
            if (names := field.suffices) is None:
                return None
            needed.update(dict.fromkeys(names))
        return tuple(needed)

    path: ClassVar[None] = None
    """As the source of an attribute, it has text: `{name}` is the text of the value, not the value at a path."""
    type: ClassVar[Literal["S"]] = "S"

    @property
    def literal(self) -> str | None:
        """The text of a template without variables, else None."""
        return None if self.fields else self.literal_prefix

    @property
    def literal_prefix(self) -> str:
        """The text before the first variable."""
        return self.parts[0] if self.parts and isinstance(self.parts[0], str) else ""

    @property
    def single(self) -> str | None:
        """The variable's name if the template is a single variable (pipes are allowed)."""
        return self.fields[0].name if self.alone and self.fields[0].expression is None else None

    @property
    def alone(self) -> bool:
        """Whether the template is a single variable or expression (pipes are allowed)."""
        return len(self.parts) == len(self.fields) == 1

    def recoverable(self, bare: Collection[str] = (), separator: str = "#") -> frozenset[str]:
        """Return the names whose values the text determines, if those in `bare` (key variables) lack the separator.

        Only names without pipes: even `pad` maps "7" and "07" to one text. No names in expressions. Items with different
        values of such a name never have the same text.
        """
        if len(self.fields) == 1 and self.fields[0].plain:
            return frozenset(self.names)
        elements = _elements(
            part if isinstance(part, str) else _Run(part.name, not part.plain or part.name not in bare)
            for part in self.parts
        )
        if _two_readings(elements, separator) is None:
            return frozenset(field.name for field in self.fields if field.plain)
        return frozenset()

    def compile(self) -> Callable[[Resolver], str | None]:
        """Return a function that renders values; None if one is missing. It raises BadInput for unsuitable values."""
        if not self.fields:
            constant = self.literal_prefix
            return lambda resolve: constant
        if any(field.expression is not None or field.absent is not None for field in self.fields):
            return self._compile_any()
        steps = [(field.name, _writer(self.text, field)) for field in self.fields]
        layout = "".join("%s" if isinstance(part, Field) else part.replace("%", "%%") for part in self.parts)

        def render(resolve: Resolver) -> str | None:
            values = []
            for name, write in steps:  # all values first: if one is missing, a wrong one does not matter
                value = resolve(name)
                if value is None:
                    return None
                values.append((write, value))
            return layout % tuple([write(value) for write, value in values])

        return render

    def _compile_any(self) -> Callable[[Resolver], str | None]:
        steps = [
            part if isinstance(part, str) else (_reader(part), _writer(self.text, part), part.absent)
            for part in self.parts
        ]

        def render(resolve: Resolver) -> str | None:
            pieces: list[str | tuple[Callable[[Value], str], Value]] = []
            bad: BadInput | None = None
            for step in steps:
                if isinstance(step, str):
                    pieces.append(step)
                    continue
                read, write, absent = step
                value = read(resolve)
                if isinstance(value, BadInput):
                    bad = bad or value
                elif value is not None:
                    pieces.append((write, value))
                elif absent is None:
                    return None
                else:
                    pieces.append(absent)
            if bad is not None:
                raise bad
            return "".join([piece if isinstance(piece, str) else piece[0](piece[1]) for piece in pieces])

        return render

    def compile_value(self) -> Callable[[Resolver], Value | None]:
        """Return a function for the text in wire form; None if a value is missing. It raises BadInput."""
        render = self.compile()

        def evaluate(resolve: Resolver) -> Value | None:
            text = render(resolve)
            return None if text is None else {"S": text}

        return evaluate

    @cached_property
    def _render(self) -> Callable[[Resolver], str | None]:
        return self.compile()

    def render(self, resolve: Resolver) -> str | None:
        """Return the text; None if a value is missing. Raises BadInput, see `compile`."""
        return self._render(resolve)


def _reader(field: Field) -> Callable[[Resolver], Value | BadInput | None]:
    """Return a function for the value of a field. That of an expression returns BadInput: a missing value comes first."""
    name, expression = field.name, field.expression
    if expression is None:
        return lambda resolve: resolve(name)
    compute = expression.compile_value()

    def read(resolve: Resolver) -> Value | BadInput | None:
        try:
            return compute(resolve)
        except BadInput as bad:
            return bad

    return read


def _writer(template: str, field: Field) -> Callable[[Value], str]:
    """Return a function from a value to its text in a template."""
    name = field.name
    pipes = [(pipe, pipe.apply) for pipe in field.pipes]

    def write(value: Value) -> str:
        text: Any = value.get("S")
        if text is None:
            number = value.get("N")
            if number is None:
                raise BadInput(f'template "{template}": {name} is {shown(value)}; a string or a number is needed')
            # DynamoDB sends integers in normal form; other numbers are normalized.
            text = number if number.isdecimal() and number[0] != "0" else _normal(template, name, value)
        for pipe, apply in pipes:
            try:
                text = apply(text)
            except UnfitError as unfit:
                raise BadInput(
                    f'template "{template}": {name} ({shown(value)}) does not fit {pipe}: it {unfit}'
                ) from None
        return text  # type: ignore[no-any-return]

    return write


def _normal(template: str, name: str, value: Value) -> str:
    try:
        return number_text(Decimal(value["N"]))
    except InvalidOperation:
        raise BadInput(f'template "{template}": {name} is {shown(value)}, which is not a number') from None


# Reading the text of a template

_BRACES = re.compile(r"\{\{|\}\}|[{}]")
_PIPE_NAME = re.compile(r"[A-Za-z_][\w-]*")
_ARGUMENT = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|([^,()'"]*[^,()'"\s]))\s*""")


def _parts(text: str) -> Iterator[str | Field]:
    """Return the literals (joined, not empty) and fields of a template."""
    literal = ""
    position = 0
    while brace := _BRACES.search(text, position):
        literal += text[position : brace.start()]
        position = brace.end()
        if brace[0] in ("{{", "}}"):
            literal += brace[0][0]
        elif brace[0] == "}":
            raise LanguageError("unmatched }; for a brace in the text write }}", brace.start())
        else:
            if literal:
                yield literal
            literal = ""
            field, position = _field(text, position)
            yield field
    if literal := literal + text[position:]:
        yield literal


def _skip(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


_COMPUTED = re.compile(r"""(?:[^'"|{}]|'[^']*'|"[^"]*")*""")
"""The text of an expression, up to the pipe or brace after it."""

_OPERAND = re.compile(rf"""-|\(|(?:{PATH.pattern}|[0-9.]+)\s*([-+*/%^(|}}])""")
"""The beginning of an expression: a sign, a parenthesis, or an operand with the character after it."""


def _field(text: str, start: int) -> tuple[Field, int]:
    """Return the field whose opening brace ends at `start`, and the position after it."""
    position = _skip(text, start)
    expression = None
    path = PATH.match(text, position)
    star = path is not None and text.startswith("*", path.end())
    end = _skip(text, path.end() + star) if path else position
    if (not path or text[end : end + 1] not in ("|", "}")) and _OPERAND.match(text, position):
        name, expression, end = _expression(text, position)
        star = False
    elif path:
        name = name_of(path[0])
    else:
        message = (
            "a name of a variable must follow {, in quotes if it has other signs; for a brace in the text write {{"
        )
        raise LanguageError(BRACES if text[position : position + 1] in ("'", '"') else message, position)
    position = end
    calls = []
    while text.startswith("|", position):
        call, position = _call(text, _skip(text, position + 1))
        calls.append(call)
        position = _skip(text, position)
    if not text.startswith("}", position):
        if "}" not in text[position:]:
            raise LanguageError(f"the variable {{{name} is not closed: write {{{name}}}", start - 1)
        raise LanguageError(
            f"unexpected {text[position]!r}; a variable is {{name}}, {{name*}} or {{name|pipe|pipe(argument)}}, an "
            "expression is {price * qty}; a name is made of letters, digits and _ - : ~ $ @, with dots between the steps of "
            "a path, or is in quotes, as {'unit price'}",
            position,
        )
    return Field(name, chain(calls), star, expression), position + 1


def _expression(text: str, start: int) -> tuple[str, Expression | None, int]:
    """Return the name of an expression, the expression itself if it is no path, and the position after it."""
    from projections.language.arithmetic import Expression  # only templates with expressions need it

    computed = _COMPUTED.match(text, start)
    assert computed is not None
    try:
        expression = Expression.parse(computed[0].rstrip(), "template")
    except LanguageError as error:
        raise LanguageError(error.message, start + (error.offset or 0)) from None
    if expression.path is not None:
        return expression.path, None, computed.end()
    return expression.text, expression, computed.end()


def _call(text: str, start: int) -> tuple[tuple[str, list[str], int], int]:
    """Return a pipe's name, arguments and offset, and the position after it."""
    pipe_name = _PIPE_NAME.match(text, start)
    if not pipe_name:
        raise LanguageError("a name of a pipe must follow |", start)
    position = pipe_name.end()
    arguments: list[str] = []
    if text.startswith("(", position):
        if text.startswith(")", _skip(text, position + 1)):
            return (pipe_name[0], [], start), _skip(text, position + 1) + 1
        while not text.startswith(")", position):
            argument = _ARGUMENT.match(text, position + 1)
            if not argument or text[argument.end() : argument.end() + 1] not in (",", ")"):
                raise LanguageError(
                    f"the arguments of {pipe_name[0]} are not closed: write {pipe_name[0]}(…)", position
                )
            arguments.append(next(group for group in argument.groups() if group is not None))
            position = argument.end()
        position += 1
    return (pipe_name[0], arguments, start), position


# Keys that can be read back


def by_field(text: str) -> Field:
    """Return a name in `by` with its pipes, as `mail|lower`. Raises LanguageError."""
    try:
        parts = Template.parse("{" + text + "}").parts
    except LanguageError as error:
        raise LanguageError(error.message, max(0, (error.offset or 1) - 1)) from None
    if len(parts) != 1 or not isinstance(parts[0], Field) or parts[0].star or parts[0].expression is not None:
        raise LanguageError("expected one variable or attribute, as userId or mail|lower", 0)
    return parts[0]


class _Run(NamedTuple):
    """One or more characters, without the separator unless `any`."""

    name: str
    any: bool


_Element = str | _Run  # one character, or a run


class KeyPattern:
    """The template of an entity's key attribute: `match` reads what `render` writes.

    `{variable}` matches one or more characters except the separator; `{variable*}` one or more of any characters.
    """

    def __init__(self, template: Template, separator: str) -> None:
        self.text = template.text
        self.separator = separator
        self.parts = template.parts
        self.names = template.names
        self.literal = template.literal
        self.literal_prefix = template.literal_prefix

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, text: str, separator: str = "#") -> KeyPattern:
        """Parse a key template. Raises LanguageError, also if a text could be read in two ways."""
        if len(separator) != 1:
            raise LanguageError(f"a separator is one character, not {separator!r}")
        if not text:
            raise LanguageError("a key cannot be empty")
        template = Template.parse(text)
        for field in template.fields:
            if sum(other.name == field.name for other in template.fields) > 1:
                raise LanguageError(f"{{{field.name}}} is used twice in this key; use each variable once")
        for field in template.fields:
            if field.expression is not None:
                raise LanguageError(
                    f"{field}: the key of an entity cannot have expressions, because its variables are also read from keys; "
                    "write a variable, such as {total}, and the expression into `bind` of the rule"
                )
            if field.pipes:
                message = (
                    f"{field}: the key of an entity cannot have pipes, because its variables are also read from keys"
                )
                raise LanguageError(f"{message}; write {{{field.name}}}, and the pipe into `bind` of the rule")
            if "." in field.name or field.name[0] in "'\"":
                raise LanguageError(f"{field}: a variable of a key is a plain name, without dots")
        pattern = cls(template, separator)
        if readings := _two_readings(pattern.elements, separator):
            shared, *variables = readings
            ways = [", ".join(f"{name} = {value!r}" for name, value in reading.items()) for reading in variables]
            raise LanguageError(
                f"{shared!r} can be read in two ways: {ways[0]}; or {ways[1]}. Put the separator {separator!r} between "
                "the variables, and use {name*} at most once"
            )
        return pattern

    def __repr__(self) -> str:
        return f"KeyPattern({self.text!r}, {self.separator!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyPattern) and (self.text, self.separator) == (other.text, other.separator)

    def __hash__(self) -> int:
        return hash((self.text, self.separator))

    @cached_property
    def elements(self) -> list[_Element]:
        """The characters and runs of the pattern, for the questions below."""
        return _elements(part if isinstance(part, str) else _Run(part.name, part.star) for part in self.parts)

    @property
    def form(self) -> _Form:
        """Its literal texts, and for each variable whether it has a star: patterns of one form match the same texts."""
        return tuple(part if isinstance(part, str) else _Run("", part.star) for part in self.parts)

    @cached_property
    def match(self) -> Callable[[str], dict[str, str] | None]:
        """Return a function from a key's text to its variables; None if the text has another form."""
        if self.literal is not None:
            constant = self.literal
            return lambda text: {} if text == constant else None
        if len(self.names) == 1:
            return self._match_one()
        names = self.names
        before = self.literal_prefix
        run = f"([^{re.escape(self.separator)}]+)"
        expression = "".join(
            re.escape(part) if isinstance(part, str) else "(.+)" if part.star else run for part in self.parts
        )
        fullmatch = re.compile(expression, re.DOTALL).fullmatch

        def match(text: str) -> dict[str, str] | None:
            if not text.startswith(before):
                return None
            match = fullmatch(text)
            return None if match is None else dict(zip(names, match.groups(), strict=True))

        return match

    def _match_one(self) -> Callable[[str], dict[str, str] | None]:
        """Return the same without a regular expression, whose compilation would slow down a cold start."""
        name = self.names[0]
        before = self.literal_prefix
        after = self.parts[-1] if isinstance(self.parts[-1], str) else ""
        start, tail = len(before), len(after)
        forbidden = None if any(isinstance(part, Field) and part.star for part in self.parts) else self.separator

        def match(text: str) -> dict[str, str] | None:
            if text[:start] != before or (after and not text.endswith(after)):
                return None
            value = text[start : len(text) - tail]
            if len(text) <= start + tail or (forbidden is not None and forbidden in value):
                return None
            return {name: value}

        return match

    @cached_property
    def _layout(self) -> str:
        return "".join("%s" if isinstance(part, Field) else part.replace("%", "%%") for part in self.parts)

    @cached_property
    def _fields(self) -> tuple[tuple[str, bool], ...]:
        return tuple((part.name, part.star) for part in self.parts if isinstance(part, Field))

    def render(self, variables: Mapping[str, str]) -> str:
        """Return the key. Raises BadInput for a value that could not be read back, KeyError for a missing one."""
        values = []
        for name, star in self._fields:
            value = variables[name]
            if not value:
                raise BadInput(f'key "{self.text}": {name} is empty; at least one character is needed')
            if not star and self.separator in value:
                raise BadInput(
                    f'key "{self.text}": {name} is {shown({"S": value})}, which contains the separator '
                    f"{self.separator!r}; write {{{name}*}} if it may"
                )
            values.append(value)
        return self._layout % tuple(values)


# Questions about all texts of a pattern. In state s, s elements have taken at least one character each, and the last of them
# may take more if it is a run. So every reading of a text is one path through the states.


def _steps(elements: list[_Element], state: int, character: str, separator: str) -> Iterator[int]:
    """Return the states after one more character."""
    if state and isinstance(last := elements[state - 1], _Run) and (last.any or character != separator):
        yield state
    if state < len(elements):
        following = elements[state]
        if following == character or (isinstance(following, _Run) and (following.any or character != separator)):
            yield state + 1


def _alphabet(*patterns: tuple[list[_Element], str]) -> list[str]:
    """Return representative characters: those in the patterns, and one that is in none of them."""
    named = {element for elements, _ in patterns for element in elements if isinstance(element, str)}
    named.update(separator for _, separator in patterns)
    codes = (range(ord("a"), ord("z") + 1), range(0x100, 0x10000))
    other = next(letter for letters in codes for letter in map(chr, letters) if letter not in named)
    return [other, *sorted(named)]


def _two_readings(elements: list[_Element], separator: str) -> tuple[str, dict[str, str], dict[str, str]] | None:
    """Return a shortest text that can be read in two ways, with both readings; None if there is no such text."""
    runs = [position for position, element in enumerate(elements) if isinstance(element, _Run)]
    anything = sum(isinstance(element, _Run) and element.any for element in elements)
    if anything <= 1 and all(separator in elements[a + 1 : b] for a, b in pairwise(runs)):
        return None  # sufficient, and true for nearly all keys: a separator between any two runs
    alphabet = _alphabet((elements, separator))

    def follow(state: tuple[int, int, bool]) -> Iterator[tuple[str, tuple[int, int, bool]]]:
        first, other, apart = state
        for character in alphabet:
            for a in _steps(elements, first, character, separator):
                for b in _steps(elements, other, character, separator):
                    if apart or a >= b:  # before they differ, their order does not matter
                        yield character, (a, b, apart or a != b)

    ambiguous = _shortest((0, 0, False), follow, (len(elements), len(elements), True))
    if ambiguous is None:
        return None
    text, states = ambiguous
    return (
        text,
        _reading(elements, text, [first_state for first_state, _, _ in states]),
        _reading(elements, text, [b for _, b, _ in states]),
    )


def _reading(elements: list[_Element], text: str, states: list[int]) -> dict[str, str]:
    """Return the variables of one reading: each state is the number of the element that took the character before it."""
    variables: dict[str, str] = {}
    for character, state in zip(text, states, strict=True):
        if isinstance(element := elements[state - 1], _Run):
            variables[element.name] = variables.get(element.name, "") + character
    return variables


_Form: TypeAlias = tuple[str | _Run, ...]


def _elements(parts: Iterable[str | _Run]) -> list[_Element]:
    """Return the characters and runs of texts and runs."""
    return [element for part in parts for element in (part if isinstance(part, str) else (part,))]


def overlap(a: KeyPattern, b: KeyPattern) -> str | None:
    """Return a shortest text that both patterns match; None if there is none."""
    shorter = min(len(a.literal_prefix), len(b.literal_prefix))
    if a.literal_prefix[:shorter] != b.literal_prefix[:shorter]:
        return None
    return _overlap(a.form, a.separator, b.form, b.separator)


@lru_cache(maxsize=16_384)  # the planner compares the same few patterns thousands of times
def _overlap(form: _Form, separator: str, other: _Form, other_separator: str) -> str | None:
    ours, theirs = _elements(form), _elements(other)
    alphabet = _alphabet((ours, separator), (theirs, other_separator))

    def follow(state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        for character in alphabet:
            for first_state in _steps(ours, state[0], character, separator):
                for other in _steps(theirs, state[1], character, other_separator):
                    yield character, (first_state, other)

    shared = _shortest((0, 0), follow, (len(ours), len(theirs)))
    return None if shared is None else shared[0]


_State = TypeVar("_State", bound=tuple[int | bool, ...])


def _shortest(
    start: _State, follow: Callable[[_State], Iterator[tuple[str, _State]]], goal: _State
) -> tuple[str, list[_State]] | None:
    """Return a shortest text that leads from start to goal, and the state after each of its characters."""
    came: dict[_State, tuple[str, _State] | None] = {start: None}
    queue = deque([start])
    while queue and goal not in came:
        state = queue.popleft()
        for character, following in follow(state):
            if following not in came:
                came[following] = (character, state)
                queue.append(following)
    if goal not in came:
        return None
    text, states, state = "", [], goal
    while (step := came[state]) is not None:
        states.append(state)
        text = step[0] + text
        state = step[1]
    return text, states[::-1]
