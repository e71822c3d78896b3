"""docs/python.md: every public name with its signature, types and docstring, and where an example of it runs."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from guide import DOCS, blocks

import projections
import projections.aws
import projections.testing
from projections.errors import ProjectionsError

__all__ = ["example_of", "names", "python_page"]

EXAMPLES = ("api.md", "reading.md", "testing.md", "queries.md")
"""Pages whose Python examples the tests run, in the order in which they are searched."""

INTRODUCTION = """\
# Python reference

<!-- Written by tests/docs/reference.py from the docstrings of the public names. -->

Every public name with its signature and types. [Python API](api.md) is the guide to them. The tests run its examples; each
entry below links to one. All functions raise [errors](#errors) that are subclasses of
`ProjectionsError`; functions that read or write a store also raise `Transient` and `Misconfigured`.

`import projections` loads no other module. Names of `projections.aws` and `projections.testing` are under their modules.

"""

MODULES = (projections, projections.aws, projections.testing)


def names() -> list[tuple[str, Any]]:
    """Return the public names with their modules, as users write them, and what they name."""
    found = [(f"{module.__name__}.{name}", getattr(module, name)) for module in MODULES for name in module.__all__]
    return [(name, one) for name, one in found if not inspect.ismodule(one)]


def example_of(name: str) -> str:
    """Return the place of the first example that uses a name, as a link; empty if there is none."""
    used = re.compile(rf"\b{re.escape(_short(name).removeprefix('testing.'))}\b( as|[(])")
    for page in EXAMPLES:
        for block in blocks((DOCS / page).read_text(encoding="utf-8")):
            if block.language in ("python", "pycon") and used.search(block.text):
                return f"[{block.heading}]({page}#{_anchor(block.heading)})"
    return ""


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def python_page() -> str:
    """Return docs/python.md."""
    functions = [(name, one) for name, one in names() if inspect.isfunction(one)]
    errors = [(name, one) for name, one in names() if inspect.isclass(one) and issubclass(one, ProjectionsError)]
    classes = [(name, one) for name, one in names() if inspect.isclass(one) and (name, one) not in errors]
    parts = [INTRODUCTION, _contents("Functions", functions), _contents("Types", classes), _contents("Errors", errors)]
    parts += ["\n## Functions\n\n", *(_function(name, one) for name, one in functions)]
    parts += ["## Types\n\n", *(_class(name, one) for name, one in classes)]
    parts += [
        "## Errors\n\n",
        "| error | is a | raised |\n| --- | --- | --- |\n",
        *(_error(name, one) for name, one in errors),
    ]
    parts += ["\n`str(error)` is the message. Exceptions of boto3 are translated: catch `Transient` to try again.\n\n"]
    parts += ["## Version\n\n", "`projections.__version__` is the version of the package, as text.\n"]
    return "".join(parts)


def _contents(title: str, found: list[tuple[str, Any]]) -> str:
    links = " · ".join(
        f"[{_short(name)}](#{_anchor(_short(name))})" if title != "Errors" else f"`{_short(name)}`" for name, _ in found
    )
    return f"- {title}: {links}\n"


def _short(name: str) -> str:
    """Return a name without `projections.`."""
    return name.removeprefix("projections.")


def _function(name: str, function: Any) -> str:
    text = f"### {_short(name)}\n\n```text\n{signature(name, function)}\n```\n\n{_prose(function)}"
    example = example_of(name)
    if not example:
        raise SystemExit(f"no example of {name}: add one to docs/api.md")
    return f"{text}Example: {example}\n\n"


def _class(name: str, one: Any) -> str:
    lines = [f"### {_short(name)}\n\n", _prose(one)]
    if one is projections.Store:
        return "".join([*lines, "It is a protocol: pass stores on, and do not call their methods.\n\n"])
    if one is projections.testing.Scenario:
        return "".join([*lines, "[Tests of rules](testing.md#the-fixture) has every method with an example.\n\n"])
    rows = list(_members(one))
    if all(row.endswith("|  |\n") for row in rows):
        rows = [row.removesuffix("  |\n") + "\n" for row in rows]
        head = "| attribute | type |\n| --- | --- |\n"
    else:
        head = "| attribute or method | type | |\n| --- | --- | --- |\n"
    if rows:
        lines += [head, *rows, "\n"]
    example = example_of(name)
    return "".join([*lines, f"Example: {example}\n\n" if example else ""])


def _members(one: Any) -> Iterator[str]:
    """Yield a row for each public field, property and method of a type."""
    fields = {field.name: field.type for field in dataclasses.fields(one)} if dataclasses.is_dataclass(one) else {}
    hints = {**{name: hint for name, hint in getattr(one, "__annotations__", {}).items() if not fields}, **fields}
    for name, hint in hints.items():
        if _is_public(one, name):
            yield _row(name, _hint(hint), "")
    for name in vars(one):
        value = inspect.getattr_static(one, name)
        if name in hints or not _is_public(one, name):
            continue
        if isinstance(value, property):
            yield _row(name, _hint(inspect.signature(value.fget).return_annotation), _first(value.fget))  # type: ignore[arg-type]
        elif inspect.isfunction(value):
            signature = inspect.signature(value)
            shown = signature.replace(
                parameters=list(signature.parameters.values())[1:], return_annotation=inspect.Signature.empty
            )
            yield _row(f"{name}{_hint(str(shown))}", _hint(signature.return_annotation), _first(value))


def _is_public(one: Any, name: str) -> bool:
    """Return whether the docstring of a type, or a guide, describes an attribute: others may change with every version."""
    described = (one.__doc__ or "") + "".join((DOCS / page).read_text(encoding="utf-8") for page in EXAMPLES[:2])
    called = r"\(" if inspect.isfunction(inspect.getattr_static(one, name, None)) else r"\b"
    return not name.startswith("_") and re.search(rf"[`.]{name}{called}", described) is not None


def _row(name: str, hint: str, text: str) -> str:
    return f"| `{name}` | `{hint}` | {text} |\n".replace(" | None", " \\| None").replace("` | `\\| None", "` | `None")


def _hint(hint: Any) -> str:
    text = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
    return text.replace("'", "").replace("|", "\\|") if "|" in text and "\\|" not in text else text.replace("'", "")


def _first(function: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].split())


def signature(name: str, function: Any) -> str:
    """Return a signature as it would be written in code, with a line for each parameter if it is long."""
    found = inspect.signature(function)
    result = str(found.return_annotation).strip("'")
    parameters, star = [], False
    for one in found.parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parameters.append("*")
            star = True
        default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
        parameters.append(f"{one.name}: {one.annotation}{default}".replace(": '", ": "))
    line = f"{name}({', '.join(parameters)}) -> {result}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {one},\n" for one in parameters)
    return f"{name}(\n{inner}) -> {result}"


def _prose(one: Any) -> str:
    """Return a docstring as Markdown: paragraphs in lines of equal length, lists and tables as they are."""
    parts = []
    for part in inspect.cleandoc(one.__doc__ or "").split("\n\n"):
        if part.startswith(">>>"):
            quoted = part.replace("'''", '"""')  # a docstring cannot contain its own quotes
            parts.append(f"```pycon\n{quoted}\n```")
        elif part.startswith(("- ", "| ")):
            parts.append(part)
        else:
            parts.append(textwrap.fill(" ".join(part.split()), 125, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(parts) + "\n\n"


def _error(name: str, one: Any) -> str:
    first = " ".join(inspect.cleandoc(one.__doc__ or "").split("\n\n")[0].split())
    return f"| `{_short(name)}` | `{one.__bases__[0].__name__}` | {first} |\n"
