"""Changes of rules: two versions of a rule file, as an operator deploys one after the other.

One of the two is the given file, the other differs in one or two rules. Changes are made to canonical documents; results
that do not compile are discarded. Changes whose result is not determined are left out:

- A rule with `expired: keep` has settled items as they were then. If it is changed, added or comes back, nothing expires,
  unless it contributes the same.
- A copy that is renamed or retired leaves items behind that only `retired: remove` deletes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from pydantic import ValidationError

from projections.errors import ProjectionsError
from projections.language.compiling import into_of, kind_of
from projections.language.measures import ADDED
from projections.language.models import ACTIONS
from projections.language.program import Program
from projections.language.syntax import LanguageError, key_text, steps
from projections.language.templates import Template
from projections.testing.oracle import Oracle
from projections.testing.pools import FOREIGN, Pools

Document = dict[str, Any]

_OTHER_KINDS = ("aggregate", "top", "latest")
_TRIES = 60
_FUNCTIONS = ("sum", "avg", "min", "max")
"""The functions of random measures. A further one would change the histories of all seeds."""
_MEASURED = re.compile(r"(?:(?:number|text)\()?([\w.]+)\)?")
"""An expression that is a path, perhaps in `number(…)` or `text(…)`."""


@dataclass(frozen=True, slots=True)
class Change:
    """Canonical documents before and after, and a description of the difference."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    words: str
    expires: bool
    """Whether items may expire meanwhile."""


def change(document: Mapping[str, Any], pools: Pools, rng: Random, *, entities: bool = False) -> Change | None:
    """A change from or to these rules, or their `entities`; None if none is found."""
    for _ in range(_TRIES):
        drawn = (_EntityDraft if entities else _Draft)(document, pools, rng).draw()
        if drawn is not None and _usable(drawn.before) and _usable(drawn.after):
            return drawn
    return None


def _usable(document: Mapping[str, Any]) -> bool:
    try:
        program = Program.from_document(document)
        Pools(program)
        Oracle(document)
    except (LanguageError, ProjectionsError, ValidationError):
        return False
    measures = (measure for rule in program.lanes.values() for measure in rule.measures)
    return bool(program.rules) and all(measure.function in ADDED for measure in measures)


class _Draft:
    """A changed copy of a document."""

    def __init__(self, document: Mapping[str, Any], pools: Pools, rng: Random) -> None:
        self._document = document
        self._pools = pools
        self._rng = rng
        self._other: Document = copy.deepcopy(dict(document))
        self._rules: dict[str, Document] = self._other["projections"]

    def draw(self) -> Change | None:
        names = list(self._rules)
        name = names[int(self._rng.random() * len(names))]
        keeps = self._rules[name].get("expired") == "keep"
        dice = self._rng.random()
        if self._rules[name]["hold"]:
            self._rules[name]["hold"] = False
            if dice < 0.5:
                return Change(self._document, self._other, f"{name} is held no longer", expires=True)
            return Change(self._other, self._document, f"{name} is held", expires=True)
        if dice < 0.12 and len(names) > 1:
            del self._rules[name]
            return Change(self._other, self._document, f"{name} is added", not keeps)
        if dice < 0.24 and len(names) > 1:
            del self._rules[name]
            fate = "keep" if self._rng.random() < 0.5 else "remove"
            self._other["retired"] = {**self._other["retired"], name: fate}
            return Change(self._document, self._other, f"{name} is retired: {fate}", expires=True)
        if dice < 0.30 and "copy" not in self._rules[name]:
            return self._rename(name, keeps)
        if dice < 0.42:
            self._rules[name]["hold"] = True
            return Change(self._other, self._document, f"{name} is held no longer", expires=True)
        words = [self._edit(name)]
        if self._rng.random() < 0.3:
            second = names[int(self._rng.random() * len(names))]
            keeps = keeps or self._rules[second].get("expired") == "keep"
            words.append(self._edit(second))
        text = " and ".join(word for word in words if word)
        if not text:
            return None
        if self._rng.random() < 0.5:
            return Change(self._document, self._other, text, not keeps)
        return Change(self._other, self._document, f"{text}, reverted", not keeps)

    def _rename(self, name: str, keeps: bool) -> Change:
        old = f"{name}Before"
        before = copy.deepcopy(dict(self._document))
        before["projections"] = {
            (old if key == name else key): rule for key, rule in self._document["projections"].items()
        }
        after = copy.deepcopy(dict(self._document))
        after["retired"] = {**after["retired"], old: "keep" if self._rng.random() < 0.5 else "remove"}
        return Change(before, after, f"{old} is renamed to {name}", not keeps)

    def _edit(self, name: str) -> str | None:
        """Changes a rule in one way; which, None if that way is not open to this rule."""
        rule = self._rules[name]
        ways = [self._where, *self._ways(rule)]
        way = ways[int(self._rng.random() * len(ways))]
        words = way(name, rule, rule[kind_of(rule)])
        return None if words is None else f"{name}: {words}"

    def _ways(self, rule: Document) -> Iterator[Callable[[str, Document, Document], str | None]]:
        kind = kind_of(rule)
        action = rule[kind]
        grouped = ACTIONS[kind].in_ledger and ACTIONS[kind].writes_items
        if "digits" in action:
            yield from (self._shards, self._digits, self._sum, self._kind, self._target)
        if kind == "aggregate":
            yield from (self._measure_less, self._measure_more, self._measure_otherwise, self._shards)
        if grouped and "by" in action:
            yield from (partial(self._turn, "order", "asc", "desc"), self._by)
        if "limit" in action:
            yield self._limit
        if "attributes" in action:
            yield from (self._show_less, self._show_more)
        if "claimed" in action:
            yield from (self._values, self._claim)
        if grouped or (isinstance(action, dict) and action.get("claimed")):
            yield self._target
        if grouped:
            yield from (self._into, self._kind)
        if isinstance(action, list):
            yield from (self._fewer_cases, self._turn_cases, self._prefix)
        if "missing" in action:
            yield from (partial(self._turn, "missing", "id", "omit"), self._form)
        if "on_delete" in action:
            yield partial(self._turn, "on_delete", "keep", "remove")
        if len(rule["from"]) > 1:
            yield from (partial(self._leave_source, -1), partial(self._leave_source, 0), self._other_where)

    # Attributes and variables

    def _any(self, choices: Sequence[Any]) -> Any:
        return choices[int(self._rng.random() * len(choices))]

    def _attributes(self, rule: Document) -> list[str]:
        """Attributes of the first source that the application writes."""
        return self._of_entity(next(iter(rule["from"])))

    def _of_entity(self, entity: str) -> list[str]:
        kind = self._pools.kinds.get(entity)
        return list(kind.attributes) if kind is not None else []

    def _variables(self, entity: str) -> list[str]:
        key = self._document["entities"][entity]["key"]
        return list(dict.fromkeys(name for text in key.values() for name in Template.parse(text).names))

    def _key_text(self, rule: Document, without: str) -> str | None:
        """A template of something that the source has, other than `without`."""
        names = [*self._attributes(rule), *self._variables(next(iter(rule["from"])))]
        names += [name for name in _first(rule).get("each", ()) if name != "most"]
        names = [name for name in names if name != without]
        return f"{{{self._any(names)}}}" if names else None

    # Of all kinds

    def _where(self, name: str, rule: Document, action: Document) -> str | None:
        first = _first(rule)
        if "where" in first and self._rng.random() < 0.5:
            del first["where"]
            return "where is dropped"
        first["where"] = self._condition(next(iter(rule["from"])))
        return f"where is {first['where']}"

    def _condition(self, entity: str) -> Document:
        names = [key_text(path) for path in self._of_entity(entity) if len(steps(path)) == 1]
        return {self._any([*names, FOREIGN]): [{"exists": self._rng.random() < 0.7}]}

    def _turn(self, part: str, first: str, second: str, name: str, rule: Document, action: Document) -> str:
        """Change a part that has one of two values."""
        action[part] = second if action[part] == first else first
        return f"{part} is {action[part]}"

    # Of aggregates

    def _measure_less(self, name: str, rule: Document, action: Document) -> str | None:
        if len(action["set"]) < 2:
            return None
        gone = self._any(list(action["set"]))
        del action["set"][gone]
        return f"{gone} is no longer set"

    def _measure_more(self, name: str, rule: Document, action: Document) -> str | None:
        action["set"][f"{name}More"] = self._measure(rule, action["set"].values())
        return f"{name}More is set to {action['set'][f'{name}More']}"

    def _measure_otherwise(self, name: str, rule: Document, action: Document) -> str | None:
        measure = self._any(list(action["set"]))
        action["set"][measure] = self._measure(rule, action["set"].values())
        return f"{measure} is {action['set'][measure]}"

    def _measure(self, rule: Document, others: Iterable[Document]) -> Document:
        expressions = [
            text for measure in others for name, text in measure.items() if name not in ("by", "where", "count")
        ]
        paths = [match[1] for text in expressions if (match := _MEASURED.fullmatch(str(text)))]
        names = [key_text(path) for path in self._attributes(rule) if len(steps(path)) == 1]
        limited = names and self._rng.random() < 0.5
        where = {"where": {self._any(names): [{"exists": True}]}} if limited else {}
        if paths and self._rng.random() < 0.7:
            function = self._any(_FUNCTIONS)
            return {function: self._cast(function, self._any(paths)), **where}
        return {"count": True, **where}

    def _cast(self, function: str, path: str) -> str:
        return f"{self._any(['number', 'text'])}({path})" if function in ("min", "max") else path

    def _shards(self, name: str, rule: Document, action: Document) -> str | None:
        action["shards"] = self._any([shards for shards in (1, 2, 3) if shards != action["shards"]])
        return f"shards is {action['shards']}"

    # Of ranks

    def _digits(self, name: str, rule: Document, action: Document) -> str | None:
        action["digits"] = max(action["decimals"], 1, action["digits"] + self._any([-1, 1]))
        return f"digits is {action['digits']}"

    def _sum(self, name: str, rule: Document, action: Document) -> str | None:
        paths = [path for path in self._attributes(rule) if path != action.get("sum")]
        if action.pop("sum", None) is None and paths:
            action["sum"] = self._any(paths)
        return f"sum is {action.get('sum')}"

    # Of lists

    def _by(self, name: str, rule: Document, action: Document) -> str | None:
        names = [path for path in self._attributes(rule) if path != action["by"]]
        if not names:
            return None
        action["by"] = self._any(names)
        return f"by is {action['by']}"

    def _limit(self, name: str, rule: Document, action: Document) -> str | None:
        action["limit"] += -1 if action["limit"] > 1 and self._rng.random() < 0.5 else 1
        return f"limit is {action['limit']}"

    # Of attributes

    def _show_less(self, name: str, rule: Document, action: Document) -> str | None:
        if action["attributes"] == "all" or len(action["attributes"]) < 2:
            return None
        gone = self._any(list(action["attributes"]))
        del action["attributes"][gone]
        return f"{gone} is no longer among its attributes"

    def _show_more(self, name: str, rule: Document, action: Document) -> str | None:
        paths = self._attributes(rule)
        if action["attributes"] == "all" or not paths:
            return None
        action["attributes"][f"{name}More"] = self._any(paths)
        return f"{name}More is {action['attributes'][f'{name}More']}"

    def _values(self, name: str, rule: Document, action: Document) -> str | None:
        action["values"][f"{name}Value"] = self._any([1, "x", True])
        return f"{name}Value is {action['values'][f'{name}Value']}"

    def _claim(self, name: str, rule: Document, action: Document) -> str | None:
        """As where an `id` is declared, or no longer: everything that holds for a claimed copy holds for another one."""
        if action["claimed"] or rule.get("expired") == "keep":
            return None
        action["claimed"] = True
        return "its copies are claimed"

    # Of kinds

    def _kind(self, name: str, rule: Document, action: Document) -> str | None:
        """Another kind of rule of the same name: its targets and its guard are as before, what it shows is new."""
        kind = self._any([kind for kind in _OTHER_KINDS if kind not in rule])
        paths = self._attributes(rule)
        if not paths or (kind != "aggregate" and rule.get("expired") == "keep"):
            return None
        shown: Document
        if kind == "aggregate":
            measures = [self._measure(rule, ())]
            if self._rng.random() < 0.5:
                path, function = self._any(paths), self._any(_FUNCTIONS)
                measures.append({function: self._cast(function, path)})
            shown = {"set": {f"{name}Kind{number}": measure for number, measure in enumerate(measures)}, "shards": 1}
        else:
            order = self._any(["asc", "desc"])
            shown = {"by": self._any(paths), "order": order, "attributes": {f"{name}Kind": self._any(paths)}}
            if kind == "top":
                shown |= {"as": f"{name}List", "limit": self._any([1, 2, 3])}
        before = rule.pop(kind_of(rule))
        rule[kind] = {"into": before["into"], **shown}
        return f"it is {kind} of {shown}"

    # Of targets

    def _target(self, name: str, rule: Document, action: Document) -> str | None:
        variables = self._variables(into_of(rule))
        if not variables:
            return None
        variable, bind = self._any(variables), _first(rule).setdefault("bind", {})
        if variable in bind and self._rng.random() < 0.3:
            del bind[variable]
            return f"{variable} is no longer bound"
        text = self._key_text(rule, variable)
        if text is None or text == bind.get(variable):
            return None
        bind[variable] = text
        return f"{variable} is {text}"

    def _into(self, name: str, rule: Document, action: Document) -> str | None:
        """Change the target to another entity that no rule reads (no cycles) and whose attributes are free."""
        if len(rule["from"]) > 1:
            return None
        read = {name for form in self._rules.values() for name in form["from"]}
        made = {into_of(form) for form in self._rules.values() if ACTIONS[kind_of(form)].makes_items}
        names = _written_names(rule)
        writers = [form for form in self._rules.values() if form is not rule and "into" in form[kind_of(form)]]
        taken = {into_of(form) for form in writers if names & _written_names(form)}
        others = [
            name for name in self._document["entities"] if name not in read | made | taken and name != into_of(rule)
        ]
        if not others:
            return None
        into = action["into"] = self._any(others)
        known = self._variables(next(iter(rule["from"])))
        bind = _first(rule)["bind"] = {}
        for variable in self._variables(into):
            text = self._key_text(rule, variable)
            if variable not in known and text is not None:
                bind[variable] = text
        return f"into {into} by {bind}"

    # Of several sources

    def _leave_source(self, position: int, name: str, rule: Document, action: Document) -> str:
        gone = [*rule["from"]][position]
        del rule["from"][gone]
        return f"{gone} is no longer a source"

    def _other_where(self, name: str, rule: Document, action: Document) -> str | None:
        """Another condition on the last source."""
        entity, other = [*rule["from"].items()][-1]
        other["where"] = self._condition(entity)
        return f"where of {entity} is {other['where']}"

    # Of indexes and embeds

    def _fewer_cases(self, name: str, rule: Document, action: Document) -> str | None:
        if len(rule["index"]) < 2:
            return None
        rule["index"].pop(int(self._rng.random() * len(rule["index"])))
        return "one case less"

    def _turn_cases(self, name: str, rule: Document, action: Document) -> str | None:
        if len(rule["index"]) < 2:
            return None
        rule["index"].reverse()
        return "its cases are turned round"

    def _prefix(self, name: str, rule: Document, action: Document) -> str | None:
        entity = self._document["entities"][next(iter(rule["from"]))]
        indexes = self._document["tables"][entity["table"]]["indexes"].values()
        parts = [index[part] for index in indexes for part in ("partition", "sort") if part in index]
        kinds = {name: kind for part in parts for name, kind in part.items()}
        case = self._any(rule["index"])
        names = [name for name in case if kinds.get(name) == "S"]
        if not names:
            return None
        attribute = self._any(names)
        case[attribute] = "NEW#" + case[attribute]
        return f"{attribute} is {case[attribute]}"

    def _form(self, name: str, rule: Document, action: Document) -> str | None:
        as_list = action["form"] == "map"
        action["form"] = "list" if as_list else "map"
        action |= {"id": "id"} if as_list else {}
        if not as_list:
            del action["id"]
        return f"form is {action['form']}"


class _EntityDraft(_Draft):
    """A document in which an entity is changed."""

    def draw(self) -> Change | None:
        """One entity changes: how its items are recognised, their keys, or what is declared unique."""
        names = {n for rule in self._rules.values() for n in (*rule["from"], into_of(rule))}
        name = self._any(sorted(names))
        form = self._other["entities"][name]
        made = name in self._pools.created
        others = [entity for other_name, entity in self._other["entities"].items() if other_name != name]
        alone = not any((entity["table"], entity["key"]) == (form["table"], form["key"]) for entity in others)
        dice = self._rng.random()
        if dice < 0.5:
            if "match" in form and self._rng.random() < 0.4 and alone:  # else items could belong to either entity
                del form["match"]
                words = "match is dropped"
            elif made:
                form["match"] = {**form.get("match", {}), "variety": "new"}  # which rules write on what they create
                words = f"match is {form['match']}"
            else:
                form["match"] = {**form.get("match", {}), FOREIGN: [{"exists": self._rng.random() < 0.5}]}
                words = f"match is {form['match']}"
        elif dice < 0.8 and made:
            attribute = next(iter(form["key"]))
            form["key"][attribute] = "NEW" + form["key"][attribute]
            words = f"{attribute} is {form['key'][attribute]}"
        else:
            form["id"] = None if form.get("id") else self._any(self._variables(name) or [""]) or None
            words = f"id is {form['id']}"
        if {"id": None, **self._document["entities"][name]} == {"id": None, **form}:
            return None
        if self._rng.random() < 0.5 and not made:
            return Change(self._other, self._document, f"{name}: {words}, reverted", expires=False)
        return Change(self._document, self._other, f"{name}: {words}", expires=False)


def _first(rule: Document) -> Document:
    """The parts of a rule that hold for its first source."""
    first: Document = next(iter(rule["from"].values()))
    return first


def _written_names(rule: Document) -> set[str]:
    """The attributes that a rule writes by name."""
    action = rule[kind_of(rule)]
    if "as" in action:
        return {action["as"]}
    listed = action.get("attributes", {})
    return {*action.get("set", {}), *(() if listed == "all" else listed), *action.get("values", {})}
