"""Random rules over one universe of entities, and random histories of what an application does to its items.

The universe is small and its values few, so that items meet in groups, move between them and come back. Rules are drawn
from the whole language as executed; those the loader refuses (a cycle, mostly) are discarded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from projections.engine.store import ItemKey, Value
from projections.language.values import plain, wire

__all__ = ["ENTITIES", "KEYS", "TABLES", "Op", "histories", "plain_histories", "rule_files", "whole"]

TABLES: Mapping[str, Any] = {
    "main": {
        "key": ["PK", "SK"],
        "indexes": {"GSI1": ["GSI1PK", "GSI1SK"], "GSI2": {"GSI2PK": "S", "GSI2SK": "N"}},
        "ttl": "expiresAt",
    },
    "side": {"key": {"board": "S", "rank": "N"}},
}

ENTITIES: Mapping[str, Any] = {
    # the application's
    "Post": {"table": "main", "key": {"PK": "POST#{post}", "SK": "META"}},
    "User": {"table": "main", "key": {"PK": "USER#{user}", "SK": "PROFILE"}},
    "Like": {"table": "main", "key": {"PK": "USER#{user}", "SK": "LIKE#{post}"}},
    "Note": {"table": "main", "key": {"PK": "POST#{post}", "SK": "NOTE#{at}#{note}"}, "id": "note"},
    "Session": {"table": "main", "key": {"PK": "SESSION#{session}", "SK": "S"}, "expires": True},
    "Draft": {"table": "main", "key": {"PK": "DOC#{doc}", "SK": "BODY"}, "match": {"state": "draft"}},
    "Page": {"table": "main", "key": {"PK": "DOC#{doc}", "SK": "BODY"}, "match": {"state": "live"}},
    "Score": {"table": "side", "key": {"board": "SCORE#{game}", "rank": "{level}"}},
    # those that only rules create
    "Twin": {"table": "main", "key": {"PK": "TWIN#{twin}", "SK": "OF#{second}"}, "derived": True},
    "Echo": {"table": "main", "key": {"PK": "ECHO#{echo}", "SK": "E"}, "match": {"kind": "Echo"}, "derived": True},
    "Tag": {"table": "main", "key": {"PK": "TAG#{tag}", "SK": "STATS"}, "derived": True},
    "Folder": {"table": "main", "key": {"PK": "FOLDER#{folder*}", "SK": "F"}, "derived": True},
    "Cell": {
        "table": "side",
        "key": {"board": "CELL#{cell}", "rank": "{rank}"},
        "match": {"kind": "Cell", "size": 1},
        "derived": True,
    },
}

_OWN = ("Post", "User", "Like", "Note", "Session", "Draft", "Page", "Score")
_DERIVED = ("Twin", "Echo", "Tag", "Folder", "Cell")
"""Each may be made from those before it."""

_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "Post": ("post",), "User": ("user",), "Like": ("user", "post"), "Note": ("post", "at", "note"),
    "Session": ("session",), "Draft": ("doc",), "Page": ("doc",), "Score": ("game", "level"),
    "Twin": ("twin", "second"), "Echo": ("echo",), "Tag": ("tag",), "Folder": ("folder",), "Cell": ("cell", "rank"),
}  # fmt: skip


def _main(entity: str, partition: str, sort: str) -> tuple[str, ItemKey]:
    return entity, ItemKey("main", partition, sort)


KEYS: Sequence[tuple[str, ItemKey]] = (
    _main("Post", "POST#p", "META"),
    _main("Post", "POST#q", "META"),
    _main("User", "USER#u", "PROFILE"),
    _main("User", "USER#v", "PROFILE"),
    _main("Like", "USER#u", "LIKE#p"),
    _main("Like", "USER#v", "LIKE#p"),
    _main("Like", "USER#v", "LIKE#q"),
    _main("Note", "POST#p", "NOTE#1#n"),
    _main("Note", "POST#p", "NOTE#2#m"),
    _main("Note", "POST#q", "NOTE#1#k"),
    _main("Session", "SESSION#s", "S"),
    _main("Session", "SESSION#t", "S"),
    _main("Session", "SESSION#u", "S"),
    _main("Page", "DOC#x", "BODY"),
    _main("Page", "DOC#y", "BODY"),
    ("Score", ItemKey("side", "SCORE#g", "1")),
    ("Score", ItemKey("side", "SCORE#g", "2.5")),
)
"""Every item the application has of its own."""

_WRITTEN: Mapping[str, Sequence[Any]] = {
    "a": [1, 2, 2.5, -3, 0, "one"],
    "b": [3, 10, {"N": "1E+20"}, -0.25, 3],
    "s": ["p", "q", "u", "Ü", "", "a#b"],
    "t": ["p", "Q", "x y", 7, 1.5],
    "w": ["2.5", "7", " 3 ", "seven", 4],
    "tags": [
        {"SS": ["p", "q"]}, {"SS": ["x"]}, ["q", "p", "q"], ["x", 1, 1.0], [], {"NS": ["1", "2"]}, "p",
    ],
    "lines": [
        [{"sku": "p", "qty": 2, "price": 1.5}, {"sku": "q", "qty": 1, "price": 3}],
        [{"sku": "p", "qty": 1, "price": 4}, {"sku": "p", "qty": 5, "price": 4}],
        [{"sku": "q"}, {"qty": 3, "price": -2}],
        [{"sku": "x", "qty": "two", "price": 1}],
        [],
    ],
    "path": ["/p/q/x.txt", "/p/x", "p/q", "p", "//p//q", 5],
    "when": ["2025-01-31T12:00:00Z", "2025-02-28", 1738324800, "2024-12-31T23:59:59.5+02:00", "soon"],
    "flag": [True, False, None],
    "m": [{"x": 1, "y": {"z": "p"}}, {"x": -2.5}, {"y": {"z": "q"}}, "flat"],
    "post": ["p", "q"],
    "user": ["u"],
    "level": [1, "1"],
}  # fmt: skip
"""What attributes may be; names of key variables may say the same as the key, or something else."""

_VALUES: Mapping[str, Sequence[dict[str, Any]]] = {
    name: [
        dict(value if isinstance(value, dict) and value.keys() <= {"SS", "NS", "N"} else wire(value))
        for value in values
    ]
    for name, values in _WRITTEN.items()
}

_RARE = ("post", "user", "level")
_PATHS = ("a", "b", "s", "t", "w", "flag", "when", "m.x", "m.y.z", "m", "tags", "lines.0.qty")
_NUMBERS = ("a", "b", "m.x", "a * b", "-a", "2 * b", "number(w)", "number(w) * a", "-m.x * a", "a * 0.1")
_ELEMENT_NUMBERS = ("e.qty", "e.qty * e.price", "-e.price", "e", "e.qty * a")
_ORDERED = ("a", "s", "t", "when", "b", "m.y.z", "w")
_EXTREME = ("-b", "2 * a", "number(w)", "a * b")
_PIPES = (
    "{a|pad(3)}", "{b|invert(4)}", "{when|date(%Y-%m)}", "{when|date(%d, Europe/Berlin)}", "{s|bucket(2)}", "{t|lower}",
    "{s|upper}", "{t|truncate(1)}", "x-{s}", "{s}.{t}", "{m.y.z}", "fixed",
)  # fmt: skip
_PATTERNS: Sequence[Mapping[str, Any]] = (
    {"a": [{"numeric": [">", 0]}]},
    {"a": [{"numeric": [">=", 1, "<", 3]}], "s": [{"exists": True}]},
    {"s": ["p", "q"]},
    {"s": [{"prefix": "p"}, {"suffix": "Ü"}]},
    {"t": [{"equals-ignore-case": "q"}, 7]},
    {"t": [{"prefix": {"equals-ignore-case": "q"}}]},
    {"flag": [True]},
    {"flag": [None, {"exists": False}]},
    {"s": [{"anything-but": ["p", "a#b"]}]},
    {"t": [{"anything-but": {"prefix": "x"}}]},
    {"tags": ["p", 1]},
    {"tags": [{"anything-but": ["p"]}]},
    {"m.x": [{"exists": True}]},
    {"m": {"y": {"z": ["p"]}}},
    {"$or": [{"a": [1]}, {"s": ["q"], "flag": [{"exists": False}]}]},
    {"b": [{"exists": False}]},
    {"w": "7"},
)
_ELEMENT_PATTERNS: Sequence[Mapping[str, Any]] = (
    {"e": [{"prefix": "p"}]},
    {"e.sku": ["p", "q"]},
    {"e.qty": [{"numeric": [">=", 2]}]},
)


# Rules


@st.composite
def rule_files(draw: st.DrawFn, most: int = 4) -> dict[str, Any]:
    """Rules by name, as plain data. What they say need not make sense: the loader may refuse it."""
    writer = _Writer(draw)
    for number in range(draw(st.integers(1, most))):
        writer.add(f"r{number}")
    rules = writer.rules
    if draw(st.booleans()):
        rules = dict(reversed(rules.items()))
    return rules


def whole(rules: Mapping[str, Any]) -> dict[str, Any]:
    """The rule file of some rules, as plain data."""
    made = {_into(rule) for rule in rules.values()}
    entities = {name: form for name, form in ENTITIES.items() if name in _OWN or name in made}
    return {"tables": dict(TABLES), "entities": entities, "projections": rules}


def _into(rule: Mapping[str, Any]) -> str:
    return str(
        next((part["into"] for part in rule.values() if isinstance(part, dict) and "into" in part), rule["from"])
    )


class _Writer:
    """Draws rules one after another; later ones may read what earlier ones write."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.rules: dict[str, dict[str, Any]] = {}
        self._copied: set[str] = set()
        self._indexed: set[tuple[str, str]] = set()
        self._more: dict[str, list[str]] = {name: [] for name in ENTITIES}
        """What earlier rules write on items of an entity."""

    def _any(self, choices: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(choices))

    def _rarely(self, one_in: int) -> bool:
        return bool(self._draw(st.integers(0, one_in - 1)) == one_in - 1)

    def _some(self, choices: Sequence[Any], most: int = 3) -> list[Any]:
        return self._draw(st.lists(st.sampled_from(choices), min_size=1, max_size=most, unique=True))

    def add(self, name: str) -> None:
        made = [entity for entity in _DERIVED if any(_into(rule) == entity for rule in self.rules.values())]
        sources = [*_OWN, "Session", "Session", "Session", *made, *made]
        source = self._any(sources)
        kinds = ["aggregate", "aggregate", "aggregate", "copy", "copy", "top", "latest", "index", "index"]
        kind = self._any(kinds)
        rule: dict[str, Any] = {"from": source}
        if self._rarely(3):
            rule["where"] = self._pattern(source)
        if kind == "index":
            index = self._index(source)
            if index is None:
                return
            self.rules[name] = {**rule, "index": index}
            return
        later = [e for e in _DERIVED if source not in _DERIVED or _DERIVED.index(e) > _DERIVED.index(source)]
        if kind == "copy":
            into = [entity for entity in later if entity not in self._copied]
        else:
            into = [*later, *later, "Post", "User", "Session", "Page", "Score", *made]
        if not into:
            return
        target = self._any(into)
        each = self._rarely(3)
        if each:
            rule["each"] = self._any(
                [
                    {"e": "tags"},
                    {"e": "lines"},
                    {"e": {"ancestors": "path"}},
                    {"e": {"ancestors": "path", "separator": "/p"}},
                ]
            )
        bind = self._bind(source, target, each, kind == "copy")
        if bind:
            rule["bind"] = bind
        if source == "Session":
            rule["expired"] = self._any(["keep", "keep", "retract"]) if kind == "aggregate" else "retract"
        rule[kind] = {"into": target, **getattr(self, "_" + kind)(name, source, target, each)}
        if kind == "copy":
            self._copied.add(target)
        self.rules[name] = rule

    def _names(self, source: str, each: bool = False) -> list[str]:
        """What templates may name."""
        variables = [*_VARIABLES[source]] * 2
        return [*variables, "s", "t", "a", "m.y.z", *self._more[source], *(["e", "e", "e.sku"] * each)]

    def _template(self, source: str, each: bool = False) -> str:
        if self._rarely(3):
            return str(self._any(_PIPES))
        names = self._some(self._names(source, each), 1 + self._rarely(4))
        return str(self._any(["-", "_", "-", "#"])).join("{" + name + "}" for name in names)

    def _bind(self, source: str, target: str, each: bool, copied: bool) -> dict[str, str]:
        bound = {}
        if copied and not self._rarely(3):  # a key that tells its source, so that no other can claim it
            first, *rest = _VARIABLES[target]
            keys = [*_VARIABLES[source], *(["e"] * each)]
            bound[first] = "-".join("{" + name + "}" for name in keys)
            return {**bound, **{name: self._any(["1", "{a}"]) for name in rest}}
        for name in _VARIABLES[target]:
            if name in _VARIABLES[source] and not self._rarely(4):
                continue
            if name in ("rank", "level"):
                bound[name] = self._any(["{a}", "{m.x}", "{when|date(%Y)}", "{t}"])
            elif target in _OWN and not self._rarely(6):  # so that it names an item which is there
                names = ["{s}", "{t|lower}", "{t}", "{m.y.z}", "p", *(["{e}", "{e.sku}"] * each)]
                bound[name] = self._any({"doc": ["x", "{e}"], "game": ["g"]}.get(name, names))
            elif name == "folder" and each:
                bound[name] = "{e}"
            elif name not in _VALUES or not self._rarely(4):
                bound[name] = self._template(source, each)
        if copied and each and not any("{e" in text for text in bound.values()):
            bound[_VARIABLES[target][0]] = "{e}"
        return bound

    def _pattern(self, source: str, each: bool = False) -> Mapping[str, Any]:
        choices = [*_PATTERNS, *(_ELEMENT_PATTERNS if each else ())]
        for name in self._more[source]:
            choices += [{name: [{"exists": True}]}, {name: [{"numeric": [">", 1]}]}]
        return self._any(choices)  # type: ignore[no-any-return]

    def _aggregate(self, name: str, source: str, target: str, each: bool) -> dict[str, Any]:
        measures: dict[str, Any] = {}
        for number, function in enumerate(self._some(["count", "sum", "avg", "min", "max", "min", "count"], 4)):
            attribute = f"{name}{'vwxyz'[number]}"
            ordered = function in ("min", "max")
            expression = self._extreme(source, each) if ordered else self._number(source, each)
            form: Any = function if function == "count" else f"{function}({expression})"
            if self._rarely(3):
                where = self._pattern(source, each)
                form = {"count": {"where": where}} if function == "count" else {function: expression, "where": where}
            measures[attribute] = form
        if self._rarely(6) and ENTITIES[target]["table"] == "main" and (target, "GSI2") not in self._indexed:
            self._indexed.add((target, "GSI2"))
            measures["GSI2SK"] = self._any(["count", "sum(a)", "avg(b)"])
        self._more[target] += [name for name in measures if name != "GSI2SK"]  # from here on: not by its own rule
        return {"set": measures, **({"shards": self._any([2, 3])} if self._rarely(4) else {})}

    def _number(self, source: str, each: bool) -> str:
        return str(self._any([*_NUMBERS, *self._more[source], *(_ELEMENT_NUMBERS * each)]))

    def _extreme(self, source: str, each: bool) -> str:
        """Of one type, which a key variable has by itself."""
        paths = [*_ORDERED, *self._more[source], *(("e.qty", "e") * each)]
        typed = [f"{self._any(['number', 'text'])}({self._any(paths)})" for _ in range(3)]
        return str(self._any([*typed, *_EXTREME, *(_VARIABLES[source] * (not each))]))

    def _copy(self, name: str, source: str, target: str, each: bool) -> dict[str, Any]:
        form: dict[str, Any] = {}
        paths = [*_PATHS, *self._more[source], *_VARIABLES[source], *(["e", "e.sku"] * each)]
        shape = self._any(["list", "map", "all", "values"])
        if shape == "list":
            form["attributes"] = self._some([p for p in paths if "." not in p and p != "e"])
            self._more[target] += form["attributes"]
        elif shape == "map":
            form["attributes"] = {f"{name}{'cdf'[n]}": path for n, path in enumerate(self._some(paths))}
            self._more[target] += form["attributes"]
        elif shape == "all":
            form["attributes"] = "all"
            self._more[target] += ["a", "s", "t", *self._more[source]]
        if shape == "values" or self._rarely(3):
            form["values"] = {f"{name}k": self._any([5, True, None, ["x", 1], {"y": 2}])}
            if self._rarely(2):
                form["values"][f"{name}l"] = self._template(source, each)
        return form

    def _top(self, name: str, source: str, target: str, each: bool) -> dict[str, Any]:
        by, attributes = self._picked(source, each)
        form = {"as": f"{name}t", "by": by, "limit": self._any([1, 2, 3]), "attributes": attributes}
        return {**form, **({"order": "asc"} if self._rarely(2) else {})}

    def _latest(self, name: str, source: str, target: str, each: bool) -> dict[str, Any]:
        by, attributes = self._picked(source, each)
        renamed = {f"{name}{'pqr'[n]}": path for n, path in enumerate(attributes)}
        self._more[target] += renamed
        return {"by": by, "attributes": renamed, **({"order": "asc"} if self._rarely(2) else {})}

    def _picked(self, source: str, each: bool) -> tuple[str, list[str]]:
        numbers = [*_VARIABLES[source], "a", "s", "t", "when", *self._more[source], *(["e", "e.qty"] * each)]
        named = [p for p in [*_PATHS, *_VARIABLES[source], *(["e"] * each)] if "." not in p]
        return self._any(numbers), self._some(named)

    def _index(self, source: str) -> Any:
        free = [index for index in ("GSI1", "GSI2") if (source, index) not in self._indexed]
        if ENTITIES[source]["table"] != "main" or not free:
            return None
        index = self._any(free)
        self._indexed.add((source, index))

        def keys() -> dict[str, Any]:
            if index == "GSI2":
                return {"GSI2PK": self._template(source), "GSI2SK": self._any(["{a}", "{m.x}", "{when|date(%Y)}"])}
            return {"GSI1PK": self._template(source), **({} if self._rarely(3) else {"GSI1SK": self._template(source)})}

        if self._rarely(2):
            return keys()
        return [{**keys(), "where": self._pattern(source)} for _ in range(self._any([1, 2]))] + [keys()] * self._rarely(
            2
        )


# Histories


@dataclass(frozen=True)
class Op:
    """One thing that the application, or the stream, does. What the fields mean depends on `what`."""

    what: str
    at: int = 0
    """Which item: an index into KEYS, or (modulo their number) into the items that rules wrote to."""
    values: Mapping[str, Value] | None = None
    pick: int = 0

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """One line, because Hypothesis prints whole histories."""
        shown = {name: plain(value) for name, value in (self.values or {}).items()}
        printer.text(f"Op({self.what!r}, {self.at}, pick={self.pick}) {shown or ''}")


def _catalogue() -> Iterator[Mapping[str, Value]]:
    """Images to choose from, so that a whole item costs the search one choice: orderly ones first."""
    yield {"state": wire("live")}
    rng = random.Random(5)
    for number in range(60):
        image: dict[str, Value] = {"state": wire("draft" if number % 3 == 2 else "live")}
        for name, values in _VALUES.items():
            if number < 40 and name in _RARE:
                continue
            if rng.random() < (0.9 if number < 30 else 0.6 if name not in _RARE else 0.2):
                image[name] = rng.choice(values[: 3 if number < 30 else len(values)])
        yield image


_IMAGES = st.sampled_from(list(_catalogue()))


def _changes() -> st.SearchStrategy[dict[str, Value]]:
    """A value for one attribute; an empty map takes one out."""
    pairs = [{name: value} for name, values in _VALUES.items() if name not in _RARE for value in values]
    pairs += [{"state": wire("live")}, {"state": wire("draft")}]
    return st.sampled_from([*pairs, *[{}] * 20])


_SLOTS = st.integers(0, len(KEYS) - 1)
_PICKS = st.integers(0, 23)
_SESSIONS = st.sampled_from([n for n, (entity, _) in enumerate(KEYS) if entity == "Session"])


def _puts() -> st.SearchStrategy[Op]:
    return st.builds(Op, st.just("put"), _SLOTS, _IMAGES)


_MANY = st.one_of(st.just(len(KEYS)), st.integers(0, len(KEYS)))


def _population(draw: st.DrawFn) -> list[Op]:
    """Most items are there from the start, in some order."""
    slots = draw(st.permutations(range(len(KEYS))))
    return [Op("put", slot, draw(_IMAGES)) for slot in slots[: draw(_MANY)]]


@st.composite
def histories(draw: st.DrawFn, most: int = 24) -> list[Op]:
    """What an application does, to derived values too, and when the stream is delivered in between."""
    edit = st.builds(Op, st.just("edit"), _SLOTS, _changes(), _PICKS)
    remove = st.builds(Op, st.just("remove"), _SLOTS)
    expiring = [st.builds(Op, st.just("expire"), _SESSIONS), st.builds(Op, st.just("put"), _SESSIONS, _IMAGES)]
    foul = [
        st.builds(Op, st.just("overwrite"), _PICKS, _IMAGES),
        st.builds(Op, st.just("save"), _PICKS),
        st.builds(Op, st.just("restore"), _PICKS, _changes(), _PICKS),
        st.builds(Op, st.just("meddle"), _PICKS, _changes(), _PICKS),
        st.builds(Op, st.just("strip"), _PICKS, st.none(), _PICKS),
        st.builds(Op, st.just("delete"), _PICKS),
    ]
    deliver = st.builds(Op, st.just("deliver"), st.integers(1, 30))
    one = st.one_of(_puts(), edit, edit, remove, *expiring, *foul[:5], st.one_of(*foul), deliver, deliver, deliver)
    number = draw(st.integers(most // 3, most))
    return [*_population(draw), *draw(st.lists(one, min_size=number, max_size=most))]


@st.composite
def plain_histories(draw: st.DrawFn, most: int = 14) -> list[Op]:
    """What an application does to its own items alone, so that it does the same whenever the stream is delivered."""
    one = st.one_of(_puts(), _puts(), st.builds(Op, st.just("remove"), _SLOTS))
    return [*_population(draw), *draw(st.lists(one, min_size=most // 3, max_size=most))]
