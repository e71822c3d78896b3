"""Deliberate defects of the engine, each a plausible shortcut. The simulation must catch every one of them.

`mutants.diff` has them, as patches of the engine's source text. While a patch is applied, the functions that it changes run
the code of the changed text; they stay the same objects, because other modules have imported them. If the old text of a
patch is not there exactly once, the mutant fails loudly: the engine has changed, and so must the mutant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from adversary import adversary_of

import projections
from projections.engine.store import ItemKey
from projections.language.loader import load
from projections.testing.simulation.application_writes import OPERATIONS
from projections.testing.simulation.history import Setup

__all__ = ["GUARDED", "MUTANTS", "Mutant", "rules_file"]

PACKAGE = Path(projections.__file__).parent


class Patch(NamedTuple):
    """Lines of a module, and those in their place."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Base:
    """What mutants are compared with: an engine with less protection, and an application `without` some operations."""

    without: frozenset[str] = frozenset()
    patches: Sequence[Patch] = ()


@dataclass(frozen=True)
class Mutant:
    """A defect. `rules` is a rule file that shows it soon, `fixed` are values of the fault plan.

    `base` removes a second protection, and the application's writes that need it, so that histories without the mutant pass.
    Most mutants of guards need a base, because healing corrects the values that the guard protects.
    """

    name: str
    rules: str
    patches: Sequence[Patch]
    base: Base
    fixed: Mapping[str, Any]
    seed: int = 0
    """The seed of the first history that goes wrong."""
    rare: tuple[Any, ...] = ()
    """If so few histories show it that only the long search finds them (`make mutants`): a test that fails with it, as the
    name of its module, its own name and its arguments.
    """
    crashes: bool = False
    """Whether the engine raises TypeError with it. Otherwise an exception is a mistake in the mutant itself."""

    @cached_property
    def patched(self) -> dict[str, str]:
        """The changed text of each module."""
        return changed_texts((*self.base.patches, *self.patches))

    def caught(self, most: int, first: int | None = None) -> int | None:
        """The number of histories until one goes wrong that goes right without the defect; None after `most`.

        The first of them is that of the mutant's `seed`, unless another is named.
        """
        first = self.seed if first is None else first
        with applied(self.patched):
            setup = self._setup()
        for seed in range(first, first + most):
            with applied(self.patched):
                wrong = self._goes_wrong(setup, seed)
            if wrong:
                with applied(changed_texts(self.base.patches)):
                    if not self._setup().play(seed).problems:
                        return seed - first + 1
        return None

    def _setup(self) -> Setup:
        """Return the setup in which it is caught, with rules as the engine compiles them now."""
        fixed = dict(self.fixed)
        document, attacker = load(rules_file(self.rules)).document(), adversary_of(fixed.pop("adversary", 0.0))
        return Setup(document, self.base.without, fixed, attacker)

    def _goes_wrong(self, setup: Setup, seed: int) -> bool:
        try:
            return bool(setup.play(seed).problems)
        except TypeError:
            if not self.crashes:
                raise
            return True


def rules_file(name: str) -> Path:
    """One of our own rule files, or one that ships."""
    ours = Path(__file__).parent / "rules" / f"{name}.yaml"
    return ours if ours.exists() else PACKAGE / "rules" / f"{name}.yaml"


# Applying patches


def changed_texts(patches: Sequence[Patch]) -> dict[str, str]:
    """Return the text of each patched module. Each patch applies exactly once."""
    texts: dict[str, str] = {}
    for module, old, new in patches:
        text = texts.get(module) or "\n" + (PACKAGE / module).read_text(encoding="utf-8")
        assert text.count(f"\n{old}") == 1, f"{module} has this {text.count(f'{chr(10)}{old}')} times:\n{old}"
        texts[module] = text.replace(f"\n{old}", f"\n{new}")
    return {module: text[1:] for module, text in texts.items()}


@contextmanager
def applied(texts: Mapping[str, str]) -> Iterator[None]:
    """Modules have other texts, given by their names."""
    with ExitStack() as undo:
        for name, text in texts.items():
            module = import_module("projections." + name.removesuffix(".py").replace("/", "."))
            undo.callback(_clear_caches, module)
            _change(module, text, undo)
            _clear_caches(module)
        yield


def _change(module: ModuleType, text: str, undo: ExitStack) -> None:
    """Give functions the code, and constants the values, that another text of their module has."""
    codes, statements = _replacements(module, text)
    for owner, statement in statements:
        if isinstance(statement, ast.FunctionDef):
            function = _function(vars(owner)[statement.name])
            undo.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = codes[function.__qualname__]
        else:
            assert isinstance(statement, ast.Assign)
            assert isinstance(statement.targets[0], ast.Name)
            name = statement.targets[0].id
            undo.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, eval(compile(ast.Expression(statement.value), "", "eval"), vars(module)))


@lru_cache(8)
def _replacements(module: ModuleType, text: str) -> tuple[dict[str, CodeType], list[tuple[Any, ast.stmt]]]:
    """Return the code of all functions, and the statements that differ, in another text of a module."""
    before = Path(str(module.__file__)).read_text(encoding="utf-8")
    codes = dict(_codes(compile(text, str(module.__file__), "exec", dont_inherit=True)))
    lines = before.split("\n"), text.split("\n")
    return codes, list(_changed(module, _parsed(before), ast.parse(text).body, lines))


@lru_cache(40)
def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _changed(
    owner: Any, before: list[ast.stmt], after: list[ast.stmt], lines: tuple[list[str], list[str]]
) -> Iterator[tuple[Any, ast.stmt]]:
    """Yield the statements of a module and its classes of which the lines differ, each with its owner."""
    for old, new in zip(before, after, strict=True):
        if lines[0][old.lineno - 1 : old.end_lineno] == lines[1][new.lineno - 1 : new.end_lineno]:
            continue
        if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
            yield from _changed(vars(owner)[new.name], old.body, new.body, lines)
        else:
            yield owner, new


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Yield the code of the functions in a module or class, by qualified name."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each.co_qualname, each
            yield from _codes(each)


def _function(value: Any) -> FunctionType:
    """Return the function that a property, a class method or a cache wraps."""
    for name in ("fget", "func", "__func__", "__wrapped__"):
        value = getattr(value, name, None) or value
    assert isinstance(value, FunctionType)
    return value


def _clear_caches(module: ModuleType) -> None:
    """Conditions and templates are compiled anew."""
    for value in vars(module).values():
        for each in (value, *(vars(value).values() if isinstance(value, type) else ())):
            if clear := getattr(getattr(each, "__func__", each), "cache_clear", None):
                clear()


# Reading mutants.diff

FROZEN: Mapping[str, Any] = {"freeze": 0.1, "faults": 30, "shards": 3, "invocations": 4}
"""Functions that stop for a while, beside others that work on the same items."""

GENTLE = frozenset(OPERATIONS) - {"put", "update", "delete", "expire"}
"""The operations that a gentle application does not have."""


def _read() -> Iterator[tuple[str, list[Any], dict[str, Any], list[Patch]]]:
    """Yield the name, rule file and options of each mutant, and its patches."""
    lines = (Path(__file__).parent / "mutants.diff").read_text(encoding="utf-8").split("\n")
    parts = "\n".join(line for line in lines if line and line[0] != "#").split("\n@ ")
    heading, patches = parts[0], list[Patch]()
    for part in [*parts[1:], ""]:
        module, *changes = part.split("\n")
        following = [line for line in changes if line[0] not in "-+ "]
        if part:
            body = changes[: len(changes) - len(following)]
            old, new = ("".join(f"{line[1:]}\n" for line in body if line[0] != sign) for sign in "+-")
            patches.append(Patch(module, old, new))
        if following or not part:
            call = ast.parse(heading, mode="eval").body
            assert isinstance(call, ast.Call)
            assert isinstance(call.func, ast.Name)
            options = {str(option.arg): ast.literal_eval(option.value) for option in call.keywords}
            yield call.func.id, [ast.literal_eval(each) for each in call.args], options, patches
            heading, patches = "\n".join(following), []


def _made(name: str, rules: str, patches: Sequence[Patch], options: dict[str, Any]) -> Mutant:
    base = BASES[options.pop("base", "")]
    if often := options.pop(
        "only", ""
    ):  # an application that does only these things, so that what they lead to is frequent
        base = Base(frozenset(OPERATIONS) - {"put", *often.split()})
    seed, crashes = options.pop("seed", 0), options.pop("crashes", False)
    rare = tuple(ItemKey(*each) if isinstance(each, tuple) else each for each in options.pop("rare", ()))
    fixed = {"change": False, **(FROZEN if options.pop("frozen", False) else {}), **options}
    return Mutant(name, rules, patches, base, fixed, seed, rare, crashes)


_PATCHES = list(_read())
UNHEALED = next(patches for name, _, _, patches in _PATCHES if name == "unhealed")
GUARDED = Base(GENTLE, UNHEALED)
BASES = {
    "": Base(),
    "gentle": Base(GENTLE),
    "guarded": GUARDED,
    # an application that deletes nothing, so that children and parents meet
    "steady": Base(frozenset(OPERATIONS) - {"put", "update"}, UNHEALED),
}
MUTANTS = [_made(name, *rules, patches, options) for name, rules, options, patches in _PATCHES if rules]
