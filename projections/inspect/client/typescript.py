"""Printer of generated modules in TypeScript.

A module is described once, by the definitions of its Python form: this prints their syntax trees in TypeScript, and adds
the helpers of `runtime.ts`, which have the same meaning as those of `runtime`. The definitions use few kinds of statements
and expressions; another one raises NotImplementedError, so that no half of it is printed.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

from projections.inspect.client.expressions import WIDTH, snake
from projections.inspect.client.module_scope import Part, Scope, defined_names, parts_needed
from projections.printable import printable

TYPES = {
    "str": "string",
    "int": "number",
    "Decimal": "Numeric",
    "bytes": "Uint8Array",
    "bool": "boolean",
    "Any": "unknown",
    "list": "unknown[]",
    **{name: name for name in ("Item", "Scalar", "Table", "Ranking")},
}

CALLED = {"Results": "new Results", "Ranking": "new Ranking", "str": "String", "range": "range"}
"""By the names in Python: what is called."""

RESERVED = frozenset(
    re.findall(
        r"\w+",
        "arguments Array atob await BigInt break btoa case catch class const continue Date debugger default delete do else "
        "enum eval export extends false finally for function if implements import in Infinity instanceof Intl interface "
        "JSON let Map Math NaN new null Number Object package Partial private Promise protected public RangeError Record "
        "RegExp return Set static String super switch Symbol TextEncoder this throw true try typeof Uint8Array undefined "
        "var void while with yield",
    )
)
"""Keywords, and what the helpers use."""

LOCALS = (
    *("table", "ledger", "attributes", "item", "variables", "fits", "show"),
    *("results", "periods", "ranking", "place", "first", "last"),
)
"""Names that many functions have, and that are the same in both languages."""

SDK = ("GetCommand", "NumberValue", "QueryCommand")
SDK_TYPES = (
    "DynamoDBDocumentClient",
    "PutCommandInput",
    "UpdateCommandInput",
    "DeleteCommandInput",
    "TransactWriteCommandInput",
)


# --- layout ---


class Group(NamedTuple):
    """Parts between brackets, separated by commas: on one line, or each on its own."""

    before: str
    parts: Sequence[Layout]
    after: str


class Within(NamedTuple):
    """A layout between two texts that stay on its lines, such as the body of an arrow function."""

    before: str
    inner: Layout
    after: str = ""


class Joined(NamedTuple):
    """Conditions that are joined by `&&` or `||`."""

    parts: Sequence[Layout]
    word: str


class Typed(NamedTuple):
    """A parameter that is taken apart: its names, their types, and what follows."""

    names: Group
    types: Sequence[str]
    after: str


Layout: TypeAlias = "str | Group | Within | Joined | Typed"


def flat(layout: Layout) -> str:
    """Return a layout on one line."""
    match layout:
        case str():
            return layout
        case Group(before, parts, after):
            space = " " if before.endswith("{") and parts else ""
            return before + space + ", ".join(map(flat, parts)) + space + after
        case Within(before, inner, after):
            return before + flat(inner) + after
        case Joined(parts, word):
            return f" {word} ".join(map(flat, parts))
        case Typed(names, types, after):
            return f"{flat(names)}: {{ {'; '.join(types)} }}{after}"


def lines(layout: Layout, indent: int, before: str = "", after: str = "") -> list[str]:
    """Return the lines of a layout between two texts, one line if it fits."""
    margin = " " * indent
    whole = f"{margin}{before}{flat(layout)}{after}"
    if len(whole) <= WIDTH or isinstance(layout, str):
        return [whole]
    match layout:
        case Within(opening, inner, closing):
            return lines(inner, indent, before + opening, closing + after)
        case Joined() if before.endswith("=> "):
            return [f"{margin}{before.rstrip()}", *_join(layout, indent + 2, after)]
        case Joined():
            return [f"{margin}{before}(", *_join(layout, indent + 2), f"{margin}){after}"]
        case Typed(names, types, closing):
            taken = [f"{margin}  {name}," for name in map(flat, names.parts)]
            typed = [f"{margin}  {kind};" for kind in types]
            return [f"{margin}{before}{{", *taken, f"{margin}}}: {{", *typed, f"{margin}}}{closing}{after}"]
        case Group(opening, [Group() | Within() | Typed() as only], closing) if opening.endswith("("):
            return lines(only, indent, before + opening, closing + after)
        case Group(opening, [*first, Group() as last], closing) if (
            opening.endswith("(")
            and last.before == "{"
            and all(isinstance(part, str) for part in first)
            and len(head := f"{before}{opening}{', '.join(map(flat, first))}, ") + indent < WIDTH
        ):
            return lines(last, indent, head, closing + after)
        case Group(opening, parts, closing):
            body = [line for part in parts for line in lines(part, indent + 2, after=",")]
            return [f"{margin}{before}{opening}", *body, f"{margin}{closing}{after}"]


def _join(layout: Joined, indent: int, after: str = "") -> list[str]:
    """Return the lines of conditions: one line if it fits."""
    whole = f"{' ' * indent}{flat(layout)}{after}"
    if len(whole) <= WIDTH:
        return [whole]
    *most, last = [lines(part, indent) for part in layout.parts]
    body = [line for part in most for line in (*part[:-1], f"{part[-1]} {layout.word}")]
    return [*body, *last[:-1], last[-1] + after]


def comment(text: str) -> list[str]:
    """Return the lines of a documentation comment with the paragraphs of a docstring."""
    paragraphs = [printable(" ".join(part.split())).replace("*/", "*\\/") for part in text.split("\n\n")]
    if len(paragraphs) == 1 and len(paragraphs[0]) + 7 <= WIDTH:
        return [f"/** {paragraphs[0]} */"]
    texts: list[str] = []
    for number, paragraph in enumerate(paragraphs):
        texts += [*([""] if number else []), *textwrap.wrap(paragraph, WIDTH - 3, break_long_words=False)]
    return ["/**", *(f" * {line}".rstrip() for line in texts), " */"]


def text_literal(text: str) -> str:
    """Return a text as a literal in double quotes. Line separators, which end a line in some tools, are escaped, too."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def property_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_$][\w$]*", name, re.ASCII) else text_literal(name)


# --- the printer ---


class Module:
    """Prints the definitions of a module.

    `writes` has the functions of write patterns, each with its parameters for tables, if it is a transaction.
    """

    def __init__(self, definitions: str, writes: Mapping[str, Sequence[str]], scope: Scope) -> None:
        self._tree = ast.parse(definitions)
        self._writes = writes
        self._shared = _parts(ranks=scope.has_ranks)
        helpers = {f"_{part.name if part.name.isupper() else snake(part.name)}": part.name for part in self._shared}
        self._helpers = {name: helpers[name] for name in helpers.keys() & defined_names(ranks=scope.has_ranks)}
        """By the names in Python: helpers that are called alike."""
        self._names = {name: name for name in (*LOCALS, "range", *SDK_TYPES)} | self._helpers
        self._taken = {*RESERVED, *LOCALS, *(part.name for part in self._shared), *SDK, *SDK_TYPES}
        self._variables = {scope.keys[entity]: self.name(kind) for entity, kind in scope.variable_types.items()}
        """By the constant of a key: the type of its variables."""
        for names in (scope.recognisers, scope.key_builders, scope.item_builders, scope.readers):
            for name in names.values():  # before those of queries
                self.name(name)
        self._parameters: dict[str, dict[str, bool]] = {}
        """By function: its parameters, and whether they are given in an object."""
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                tables = writes.get(node.name)
                self._parameters[node.name] = {
                    argument.arg: argument.arg not in tables if tables is not None else not _is_apart(argument)
                    for argument in (*node.args.args, *node.args.kwonlyargs)
                }
        # Of the function that is printed:
        self._tables: Mapping[str, str] = {}
        """Parameters for tables, by their names in Python."""
        self._writing = False
        """Whether it makes the request of a write pattern."""
        self._type_of_results = ""

    def text(self, about: Sequence[str], guard_prefix: str) -> str:
        """Return the text of the module, after a comment of these paragraphs."""
        own = ["\n".join(self._definition(node)) for node in self._tree.body]
        needed = parts_needed(self._shared, {*_words("\n".join(own)), "Table", "Item"})
        guard = f"const GUARD = {text_literal(guard_prefix)};"
        shared = [guard if part.name == "GUARD" else part.text for part in needed]
        used = _words("\n".join([*own, *shared]))
        names = [*(name for name in SDK if name in used), *(f"type {name}" for name in SDK_TYPES if name in used)]
        imported = lines(Group("{", names, "}"), 0, "import ", ' from "@aws-sdk/lib-dynamodb";')
        head = "\n".join([*comment("\n\n".join(about)), "", *imported])
        return "\n\n".join([head, *own, "// --- helpers ---", *shared]) + "\n"

    def name(self, python: str) -> str:
        """Return the name in TypeScript, which is the same everywhere in the module."""
        if python == "table" and self._writing:
            return "table_"  # an entity
        if python not in self._names:
            wanted = camel(python)
            while wanted in self._taken:
                wanted += "_"
            self._taken.add(wanted)
            self._names[python] = wanted
        return self._names[python]

    # --- definitions ---

    def _definition(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.ClassDef(name=name, body=[ast.Expr(value=ast.Constant(value=str(about))), *fields]):
                members = [(each.target.id, each.annotation) for each in fields if isinstance(each, ast.AnnAssign)]  # type: ignore[union-attr]
                return [*comment(about), *self._interface(name, members)]
            case ast.Assign(
                value=ast.Call(func=ast.Name(id="TypedDict"), args=[ast.Constant(value=str(name)), fields])
            ):
                assert isinstance(fields, ast.Dict)
                members = [(_string(key), kind) for key, kind in zip(fields.keys, fields.values, strict=True)]
                return self._interface(name, members)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="Path"), args=[index, keys])):
                parts: list[Layout] = [] if ast.unparse(index) == "None" else [f"index: {text_literal(_string(index))}"]
                parts.append(Within("key: ", self._layout(keys)))
                return lines(Group("{", parts, "}"), 0, f"const {self.name(name)}: Path = ", ";")
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="RankRule"), args=arguments)):
                names = ("name", "version", "board", "digits", "decimals", "descending", "sums")
                known = [Within(f"{key}: ", self._layout(value)) for key, value in zip(names, arguments, strict=True)]
                return lines(Group("{", known, "}"), 0, f"const {self.name(name)}: RankRule = ", ";")
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return lines(self._layout(value), 0, f"const {self.name(name)} = ", ";")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._function(node)
        raise NotImplementedError(ast.dump(node))

    def _interface(self, name: str, members: Iterable[tuple[str, ast.expr]]) -> list[str]:
        body = []
        rename = self.name if self.name(name) in self._variables.values() else property_name
        for member, annotation in members:
            required = isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Required"
            kind = annotation.slice if isinstance(annotation, ast.Subscript) and required else annotation
            body.append(f"  {rename(member)}{'' if required else '?'}: {self._member_type(kind)};")
        return [f"export interface {self.name(name)} {{", *body, "}"]

    def _member_type(self, annotation: ast.expr) -> str:
        """Return the type of an attribute: numbers that are read as the document client returns them by default."""
        read = "int | Decimal" not in ast.unparse(annotation)
        kind = self._type(annotation).replace("Numeric", "number" if read else "Numeric")
        return "null" if kind == "undefined" else kind

    def _type(self, annotation: ast.expr) -> str:
        match annotation:
            case ast.Name(id=name):
                return TYPES.get(name) or self.name(name)
            case ast.Constant(value=None):
                return "undefined"
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                kinds = " | ".join(dict.fromkeys([self._type(left), self._type(right)]))
                kinds = kinds.replace("number | Numeric", "Numeric")
                return "unknown" if "boolean" in kinds else kinds  # a value that was read, of any type
            case ast.Subscript(value=ast.Name(id="list"), slice=inner):
                return f"{self._type(inner)}[]"
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=elements)):
                return f"[{', '.join(map(self._type, elements))}]"
            case ast.Subscript(value=ast.Name(id="set"), slice=inner):
                return f"Set<{self._type(inner)}>"
            case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
                return f"Record<string, {self._type(inner)}>"
            case ast.Subscript(value=ast.Name(id="Mapping"), slice=ast.Tuple(elts=[_, ast.Name(id=name)])):
                return "Item" if name == "Any" else f"Item & {self.name(name)}"
            case ast.Subscript(value=ast.Name(id="Results" | "Positions" as generic), slice=inner):
                return f"{generic}<{self._type(inner)}>"
        raise NotImplementedError(ast.dump(annotation))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
        function = self.name(node.name)
        about, *body = node.body
        docs = comment(_in_javascript(_string(about.value))) if isinstance(about, ast.Expr) else []
        match node.returns:
            case ast.Subscript(value=ast.Name(id="TypeGuard"), slice=kind):
                self._tables, self._writing = {}, False
                head = f"export function {function}(item: Item): item is Item & {self._type(kind)} {{"
                return [*docs, head, *self._body(body, 2), "}"]
        assert node.returns is not None
        result = self._type(node.returns)
        self._type_of_results = returns = f"Promise<{result}>" if isinstance(node, ast.AsyncFunctionDef) else result
        self._writing = node.name in self._writes
        tables = self._writes.get(node.name, ())
        self._tables = {table: "table" if len(tables) == 1 else self.name(table) for table in tables}
        apart = [argument.arg for argument in node.args.args if ast.unparse(argument.annotation or node) == "Table"]
        apart = [*self._tables.values()] or (["table"] if self._writing else apart)
        parameters: list[Layout] = [f"{table}: Table" for table in apart]
        passed = [argument for argument in node.args.args if self._parameters[node.name][argument.arg]]
        optional = {
            argument.arg
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            if default is not None
        }
        named = [*passed, *node.args.kwonlyargs]
        if named:
            kinds = []
            for argument in named:
                name = self.name(argument.arg) + ("?" if argument.arg in optional else "")
                annotation = self._type(argument.annotation or ast.Constant(None))
                kinds.append(f"{name}: {annotation}")
            default = " = {}" if len(optional) == len(named) else ""
            names = Group("{", [self.name(argument.arg) for argument in named], "}")
            parameters.append(Typed(names, kinds, default))
        for argument in node.args.args:
            if argument.annotation and argument.arg in ("item", "attributes") and argument not in passed:
                parameters.append(f"{argument.arg}: {self._type(argument.annotation)}")
        waits = any(isinstance(part, ast.Assign) and isinstance(part.value, ast.Await) for part in body)
        word = "async function" if waits else "function"
        opening = lines(Group(f"export {word} {function}(", parameters, ")"), 0, "", f": {returns} {{")
        return [*docs, *opening, *self._body(body, 2), "}"]

    # --- statements ---

    def _body(self, body: Sequence[ast.stmt], indent: int) -> list[str]:
        margin = " " * indent
        printed: list[str] = []
        assigned: set[str] = set()
        for node in body:
            match node:
                case ast.AnnAssign(
                    target=ast.Name(id="item" | "variables"),
                    annotation=kind,
                    value=ast.Await(value=ast.Call() as value) | (ast.Call() as value),
                ):
                    read = self._call(value, self._type(kind).removesuffix(" | undefined"))
                    return [*printed, *lines(read, indent, "return ", ";")]  # instead of `return item`
                case ast.Return(value=ast.Await(value=value)):  # the caller waits
                    printed += lines(self._layout(value), indent, "return ", ";")
                case ast.Return(value=value) if value is not None:
                    layout = self._request(value) if self._writing and not self._tables else self._layout(value)
                    printed += lines(layout, indent, "return ", ";")
                case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value) if value is not None:
                    typed = "" if isinstance(value, ast.Call) else f": {self._type(kind)}"
                    printed += lines(self._layout(value), indent, f"const {self.name(name)}{typed} = ", ";")
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[_, ast.Name(id=key)]) as value) if (
                    key in self._variables
                ):
                    read = self._call(value, self._variables[key])
                    printed += lines(read, indent, f"const {self.name(name)} = ", ";")
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    times = [_assigned_name(each) for each in body].count(name)
                    word = "const " if times == 1 else "let " if name not in assigned else ""
                    assigned.add(name)
                    printed += lines(self._layout(value), indent, f"{word}{self.name(name)} = ", ";")
                case ast.Assign(targets=[ast.Subscript() as target], value=value):
                    printed += lines(self._layout(value), indent, f"{flat(self._layout(target))} = ", ";")
                case ast.If(test=test, body=then, orelse=[]):
                    head = _condition(self._layout(test), indent)
                    printed += [*head, *self._body(then, indent + 2), f"{margin}}}"]
                case ast.FunctionDef(name=name, body=[ast.Return(value=value)]) if value is not None:
                    printed += lines(self._layout(value), indent, f"const {name} = {_arrow(name)}", ";")
                case ast.FunctionDef(name=name, body=inner):
                    opening = f"{margin}const {name} = {_arrow(name)}{{"
                    printed += [opening, *self._body(inner, indent + 2), f"{margin}}};"]
                case _:
                    raise NotImplementedError(ast.dump(node))
        return printed

    def _request(self, value: ast.expr) -> Layout:
        """Return the input of a write, with the name of its table."""
        if isinstance(value, ast.List):
            return Group("[", [self._request(each) for each in value.elts], "]")
        layout = self._layout(value)
        assert isinstance(layout, Group)
        return Group(layout.before, ["TableName: table.name", *layout.parts], layout.after)

    # --- expressions ---

    def _layout(self, node: ast.expr) -> Layout:
        match node:
            case ast.Constant(value=value):
                return _constant(value)
            case ast.Name(id=name):
                return f"{self._tables[name]}.name" if name in self._tables else self.name(name)
            case ast.JoinedStr(values=parts):
                return "`" + "".join(map(self._text_part, parts)) + "`"
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return Group("[", [*map(self._layout, elements)], "]")
            case ast.Starred(value=value):
                return Within("...", self._layout(value))
            case ast.Dict(keys=keys, values=values):
                return Group("{", [self._entry(key, value) for key, value in zip(keys, values, strict=True)], "}")
            case ast.Subscript(slice=ast.Slice(lower=None, upper=ast.Constant(value=length)), value=value):
                return Group("truncate(", [self._layout(value), str(length)], ")")
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
                return self._member(value, name)
            case ast.BoolOp(op=op, values=values):
                return Joined([self._operand(each) for each in values], "&&" if isinstance(op, ast.And) else "||")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"!{flat(self._operand(operand, always=True))}"
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
                return _constant(-value)  # type: ignore[operator]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                then, otherwise = flat(self._layout(body)), flat(self._layout(orelse))
                return f"{flat(self._layout(test))} ? {then} : {otherwise}"
            case ast.BinOp(op=ast.Add(), left=left, right=ast.Constant(value=1)):
                return f"next({flat(self._layout(left))})"
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return " + ".join(
                    f"({text})" if " ? " in text else text
                    for text in (flat(self._layout(left)), flat(self._layout(right)))
                )
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._comparison(left, op, right)
            case ast.ListComp(elt=element, generators=generators):
                return self._comprehension(element, generators)
            case ast.Lambda(args=arguments, body=body):
                names = ", ".join(self.name(argument.arg) for argument in arguments.args)
                return Within(f"({names}) => ", self._layout(body))
            case ast.Attribute(value=value, attr=name):
                return f"{flat(self._layout(value))}.{name}"
            case ast.Await(value=value):
                return Within("await ", self._layout(value))
            case ast.Call():
                return self._call(node)
        raise NotImplementedError(ast.dump(node))

    def _operand(self, node: ast.expr, *, always: bool = False) -> Layout:
        """Return an operand of `&&`, `||` or `!`: in parentheses where these bind less than what surrounds them."""
        layout = self._layout(node)
        if isinstance(node, ast.BoolOp | ast.IfExp) or (always and isinstance(node, ast.Compare)):
            return f"({flat(layout)})"
        return layout

    def _text_part(self, part: ast.expr) -> str:
        match part:
            case ast.Constant(value=str(text)):
                return text_literal(text)[1:-1].replace('\\"', '"').replace("`", "\\`").replace("${", "\\${")
            case ast.FormattedValue(value=value):
                return "${" + flat(self._layout(value)) + "}"
        raise NotImplementedError(ast.dump(part))

    def _entry(self, key: ast.expr | None, value: ast.expr) -> Layout:
        if key is None:
            return Within("...", self._layout(value))
        return _property(property_name(_string(key)), self._layout(value))

    def _member(self, value: ast.expr, name: str) -> str:
        whole = flat(self._layout(value))
        known = isinstance(value, ast.Name) and value.id.endswith("variables")
        return f"{whole}.{self.name(name)}" if known else f"{whole}[{text_literal(name)}]"

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
        first = flat(self._layout(left))
        first = f"({first})" if " ?? " in first else first
        match op, right:
            case ast.In(), _:
                return f"{first} in {flat(self._layout(right))}"
            case ast.NotIn(), ast.Tuple():  # neither None nor _ABSENT
                return f"{first} != null"
            case ast.NotIn(), _:
                return f"!({first} in {flat(self._layout(right))})"
            case ast.Is() | ast.IsNot(), ast.Constant(value=None):
                loose = isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute)  # of an item: NULL, too
                loose = loose or (isinstance(left, ast.Subscript))
                sign = "=" if isinstance(op, ast.Is) else "!"
                return f"{first} {sign}= null" if loose else f"{first} {sign}== undefined"
            case ast.Is() | ast.IsNot(), ast.Name(id="_ABSENT"):
                return f"{first} {'=' if isinstance(op, ast.Is) else '!'}== undefined"
            case ast.Eq(), _:
                return f"{first} === {flat(self._layout(right))}"
        raise NotImplementedError(ast.dump(op))

    def _comprehension(self, element: ast.expr, generators: Sequence[ast.comprehension]) -> Layout:
        layout = self._layout(element)
        body = Group("({", layout.parts, "})") if isinstance(layout, Group) and layout.before == "{" else layout
        for number, generator in enumerate(reversed(generators)):
            method = "map" if number == 0 else "flatMap"
            over = flat(self._layout(generator.iter))
            variable = self.name(ast.unparse(generator.target))
            kind = {ast.Call: ": Read", ast.List: ": Read[]"}.get(type(element), "") if number == 0 else ""
            body = Within(f"{over}.{method}(({variable}){kind} => ", body, ")")
        return body

    def _call(self, node: ast.Call, generic: str = "") -> Layout:
        arguments = [self._layout(argument) for argument in node.args]
        words = {word.arg or "": self._layout(word.value) for word in node.keywords}
        properties = [_property(camel(name), value) for name, value in words.items()]
        options = [Group("{", properties, "}")] if words else []
        match node.func:
            case ast.Attribute(value=ast.Name(id="re"), attr="compile"):
                return self._pattern(_string(node.args[0]))
            case ast.Attribute(value=ast.Call(func=ast.Name(id="Key"), args=[name]), attr=method):
                return Group("[", [self._layout(name), text_literal({"eq": "="}.get(method, method)), *arguments], "]")
            case ast.Attribute(value=value, attr="get"):
                member = self._member(value, _string(node.args[0]))
                return f"{member} ?? {flat(arguments[1])}" if len(arguments) > 1 else member
            case ast.Attribute(value=value, attr="casefold"):
                return f"foldCase({flat(self._layout(value))})"
            case ast.Attribute(value=value, attr=method):
                names = {
                    "lower": "toLowerCase",
                    "upper": "toUpperCase",
                    "startswith": "startsWith",
                    "endswith": "endsWith",
                }
                return Group(f"{flat(self._layout(value))}.{names.get(method, method)}(", [*arguments, *options], ")")
            case ast.Name(id="Read"):
                path, *where = arguments
                parts: list[Layout] = [Within("path: ", path), Within("where: ", Group("[", where, "]"))]
                return Group("{", [*parts, *properties], "}")
            case ast.Name(id="Decimal"):
                (argument,) = node.args
                if isinstance(argument, ast.Constant) and f"{float(str(argument.value))!r}" == argument.value:
                    return str(argument.value)
                return Group("NumberValue.from(", arguments, ")")
            case ast.Name(id="reversed"):
                return f"[...{flat(arguments[0])}].reverse()"
            case ast.Name(id=function) if function in self._parameters:
                known = self._parameters[function]
                passed = dict(zip(known, arguments, strict=False)) | words
                apart = [value for key, value in passed.items() if not known[key]]
                entries = [_property(self.name(key), value) for key, value in passed.items() if known[key]]
                return Group(f"{self.name(function)}(", [*apart, *([Group("{", entries, "}")] if entries else [])], ")")
            case ast.Name(id=function) if function in CALLED or function in self._helpers:
                if function == "Results":
                    generic = re.sub(r"^(Results|Promise)<(.*?)( \| undefined)?>$", r"\2", self._type_of_results)
                elif function in ("_is_any", "_key_part"):
                    arguments = ["null" if argument == "undefined" else argument for argument in arguments]
                called = CALLED.get(function) or self._helpers[function]
                return Group(f"{called}{f'<{generic}>' if generic else ''}(", [*arguments, *options], ")")
        raise NotImplementedError(ast.dump(node))

    def _pattern(self, pattern: str) -> str:
        """Return the regular expression of a key as a literal."""
        pattern = pattern.replace("(?s:.+)", "[^]+").replace("/", "\\/")
        pattern = re.sub(r"\(\?P<(\w+)>", lambda match: f"(?<{self.name(match[1])}>", pattern)
        return "/^" + "".join(each if each.isprintable() else f"\\u{{{ord(each):x}}}" for each in pattern) + "$/u"


def _assigned_name(node: ast.stmt) -> str:
    """Return the name that a statement assigns a value to."""
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""


def _condition(test: Layout, indent: int) -> list[str]:
    """Return the first lines of an `if`."""
    whole = f"{' ' * indent}if ({flat(test)}) {{"
    if len(whole) <= WIDTH or not isinstance(test, Joined):
        return lines(test, indent, "if (", ") {")
    return [f"{' ' * indent}if (", *_join(test, indent + 2), f"{' ' * indent}) {{"]


def _arrow(name: str) -> str:
    """Return the beginning of a function on items."""
    return f"(item: Item): {'boolean' if name == 'fits' else 'Item'} => "


def _property(name: str, value: Layout) -> Layout:
    """Return a property of an object."""
    return name if value == name else Within(f"{name}: ", value)


def _is_apart(argument: ast.arg) -> bool:
    """Return whether a parameter is not in the object with the others: a table, an item, or the attributes of one."""
    kind = ast.unparse(argument.annotation) if argument.annotation else ""
    return kind == "Table" or (argument.arg in ("item", "attributes") and kind.startswith("Mapping"))


def _constant(value: Any) -> str:
    match value:
        case None:
            return "undefined"
        case bool():
            return str(value).lower()
        case str():
            return text_literal(value)
        case int():
            return str(value) if abs(value) < 2**53 else f"{value}n"
        case float():
            return f"{value:g}"
    raise NotImplementedError(repr(value))


def _string(node: ast.expr | None) -> str:
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, str)
    return node.value


# --- the text of a module ---


_IGNORED = re.compile(r"/\*\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
_WORD = re.compile(r"(?<!\w)(?:(?<=\.\.\.)|(?<!\.))[A-Za-z_]\w*")
_DECLARATION = re.compile(r"^(?:export )?(?:async )?(?:function|const|class|interface|type) (\w+)", re.MULTILINE)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_IGNORED.sub("", text)))


def _in_javascript(text: str) -> str:
    """Return a docstring with the words of JavaScript."""
    text = re.sub(r"^Return ", "Returns ", text).replace("; None if", "; undefined if")
    return text.replace("Raises ValueError", "Throws RangeError")


def camel(text: str) -> str:
    """Return a name of functions and variables: `postsOf` and `posts_of` become `postsOf`. Those of types stay."""
    bare = text.strip("_") or text
    first, *words = snake(bare).split("_")
    return bare if bare[:1].isupper() else first + "".join(word[:1].upper() + word[1:] for word in words)


@cache
def _parts(*, ranks: bool) -> tuple[Part, ...]:
    """Return the declarations of `runtime.ts` in their order, and with `ranks` those of `rank_runtime.ts`."""
    names = ("runtime.ts", "rank_runtime.ts") if ranks else ("runtime.ts",)
    sources = [files(__package__).joinpath(name).read_text(encoding="utf-8").rstrip("\n") for name in names]
    texts = [text for source in sources for text in re.split(r"\n\n(?=\S)", source) if _DECLARATION.search(text)]
    parts = []
    for text in texts:
        declaration = _DECLARATION.search(text)
        assert declaration is not None, text
        parts.append(Part(declaration[1], text, _words(text) - {declaration[1]}))
    return tuple(parts)
