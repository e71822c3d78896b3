"""The function of a rule of the kind `rank`: it returns the ranking of a board, which reads the ledger."""

from __future__ import annotations

from projections.inspect.client.layout import Call, Expression, statement
from projections.inspect.client.naming import Names, docstring, literal, snake
from projections.inspect.client.scope import Scope
from projections.language.ranks import RankRule
from projections.language.syntax import an

__all__ = ["rank_function"]


def rank_function(scope: Scope, rule: RankRule, name: str, key_name: str) -> list[str]:
    """Return the function. `key_name` is that of the function which makes the key of the board."""
    entity = rule.into.name
    own = Names(("ledger", "consistent", "key"))
    given = [(own.take(snake(each)), scope.parameter(entity, each).type) for each in scope.variables[entity]]
    parameters: list[Expression] = ["ledger: Table", *(f"{each}: {kind}" for each, kind in given)]
    parameters += ["*", "consistent: bool = False"]
    scale = rule.scale
    shown = f"{scale.digits}.{scale.decimals}" if scale.decimals else str(scale.digits)
    board = f"_board({literal(f'G|{rule.name}|{rule.into.table}')}, key, {literal(shown)})"
    first = "greatest" if rule.descending else "least"
    arguments: list[Expression] = ["ledger", board, str(scale.digits), str(scale.decimals)]
    arguments += [f"descending={rule.descending}", "consistent=consistent"]
    return [
        *statement(f"def {name}", Call("(", parameters, ")"), 0, " -> Ranking:"),
        *docstring(
            4,
            f"Return the ranking of {an(entity)} by the rule {rule.name}: the {first} score has rank 1.",
            "`ledger` is the ledger table. Nothing is read before a method of the ranking is called.",
        ),
        *statement("key = ", Call(f"{key_name}(", [each for each, _ in given])),
        *statement("return ", Call("Ranking(", arguments)),
    ]
