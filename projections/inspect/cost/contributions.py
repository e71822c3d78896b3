"""What contributions cost: entries, groups and members in transactions, and publishing what groups say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from projections.inspect.cost.context import LITTLE, BatchCost, Context, Effects
from projections.inspect.cost.facts import RuleFacts
from projections.inspect.cost.flow import EDIT, INSERT, REMOVE, Flow
from projections.inspect.cost.packing import Packed, Pieces, Shape, pack
from projections.inspect.cost.terms import Term
from projections.inspect.rehearsal.recorder import KEYS_PER_REQUEST
from projections.language.rules import CopyRule, PickRule
from projections.stores.capacity import TRANSACTIONAL, read_units, write_units
from projections.stores.statements import BATCH_STATEMENTS

__all__ = ["batched", "contribute", "queried"]


def contribute(at: Context, flows: Mapping[Flow, float], cost: BatchCost, effects: Mapping[Flow, Effects]) -> None:
    """All that the flows of a batch change in the ledger, and what is published of it."""
    shapes: dict[Shape, float] = {}
    owner: dict[Shape, Flow] = {}
    retracting: dict[Shape, float] = {}
    for flow, count in flows.items():
        for shape, share, takes_back in _shapes(at, flow):
            shapes[shape] = shapes.get(shape, 0.0) + count * share
            owner[shape] = flow
            retracting[shape] = takes_back
    if not shapes:
        return
    packed = pack(shapes)
    cost.row += packed.row
    cost.entry_bytes = max([cost.entry_bytes, *(float(shape.entry_bytes) for shape in shapes)])
    cost.transactions += packed.transactions
    cost.actions += packed.actions
    sharing = tuple(dict.fromkeys(p.rule for shape in shapes for p in shape.pieces))
    _entries(at, shapes, packed, cost)
    why = f"{packed.actions:.4g} actions, at most 100 each, those of one target together"
    cost.terms.append(Term(sharing, "transaction", packed.transactions, why, calls=1))
    for rule, number in packed.groups.items():
        why = f"once for each target in each transaction: {packed.targets[rule]:.4g} targets"
        cost.terms.append(Term((rule,), "group", number, why, write_units=TRANSACTIONAL))
    for rule, number in packed.members.items():
        if number > LITTLE:
            units = TRANSACTIONAL * write_units(round(at.member_bytes(at.facts[rule])))
            cost.terms.append(Term((rule,), "member", number, "one for each value or element in order", units))
    _forget(at, shapes, retracting, cost)
    _publish(at, shapes, owner, packed, cost, effects)


def _entries(at: Context, shapes: Mapping[Shape, float], packed: Packed, cost: BatchCost) -> None:
    total = sum(shapes.values())
    for shape, count in shapes.items():
        rules = tuple(pieces.rule for pieces in shape.pieces)
        units = TRANSACTIONAL * write_units(shape.entry_bytes)
        why = f"one for each {shape.name}, in a transaction; about {shape.entry_bytes} bytes"
        cost.terms.append(Term(rules, "entry", count * packed.entries / total, why, write_units=units))


def _shapes(at: Context, flow: Flow) -> Iterator[tuple[Shape, float, float]]:
    """The kinds of changes that a flow makes in the ledger: each with its share, and how often it takes back.

    Rules that apply to fewer items apply to some of those that the others apply to.
    """
    found: list[tuple[float, Pieces, float]] = []
    for facts in at.from_entity.get(flow.entity, ()):
        if facts.ledger:
            pieces, takes_back = _pieces(at, facts, flow)
            if pieces is not None:
                found.append((at.assumed.share(facts.name), pieces, takes_back))
    found.sort(key=lambda one: -one[0])
    for number, (share, _, _) in enumerate(found):
        following = found[number + 1][0] if number + 1 < len(found) else 0.0
        if share - following <= LITTLE:
            continue
        together = tuple(one for _, one, _ in found[: number + 1])
        back = max(one for _, _, one in found[: number + 1])
        yield Shape(str(flow), together, at.entry_bytes(flow.entity, together)), share - following, back


def _pieces(at: Context, facts: RuleFacts, flow: Flow) -> tuple[Pieces | None, float]:
    """What one change of a flow does under one rule, and how likely it takes something back from a target."""
    rule, members = facts.rule, facts.members
    elements = round(at.assumed.elements_of(facts.name)) if rule.each is not None else 1
    different = at.different(facts)
    size = facts.member_bytes
    if flow.kind == INSERT:
        return Pieces(facts.name, elements, different, puts=members, member_bytes=size), 0.0
    if flow.kind == REMOVE:
        return Pieces(facts.name, elements, different, removes=members), 1.0
    changed = facts.changed(flow.attributes)
    if facts.everything:
        changed = changed or frozenset({"*"})
    if not changed:
        return None, 0.0
    if changed & facts.target:
        one = 1 if rule.each is not None else elements
        return Pieces(facts.name, one, different, puts=members, member_bytes=size, twice=True), 1.0
    if changed & facts.where:  # half of them join, half leave
        return Pieces(facts.name, elements, different, puts=members, member_bytes=size), 0.5
    moves = members if not isinstance(rule, PickRule) or rule.by.split(".")[0] in changed else 0
    puts = members
    if isinstance(rule, CopyRule):
        moves = 0
    return Pieces(facts.name, elements, different, puts=puts, removes=moves, member_bytes=size), 0.0


def _forget(at: Context, shapes: Mapping[Shape, float], retracting: Mapping[Shape, float], cost: BatchCost) -> None:
    """What takes something back owes its publication until it is made."""
    all_owing, sharing = 0.0, list[str]()
    for shape, count in shapes.items():
        owing = count * retracting[shape]
        if owing > LITTLE:
            rules = tuple(pieces.rule for pieces in shape.pieces)
            why = f"{shape.name} takes back what it gave; its entry notes that this is published"
            cost.terms.append(Term(rules, "forget", owing, why, write_units=1, read_units=1))
            all_owing += owing
            sharing += rules
    if all_owing > LITTLE:
        rules = tuple(dict.fromkeys(sharing))
        why = f"{BATCH_STATEMENTS} entries a call"
        cost.terms.append(Term(rules, "forget", batched(all_owing, BATCH_STATEMENTS), why, calls=1))
        cost.terms.append(Term(rules, "entry read", batched(all_owing), "the entries that owe something", calls=1))


def _publish(
    at: Context,
    shapes: Mapping[Shape, float],
    owner: Mapping[Shape, Flow],
    packed: Packed,
    cost: BatchCost,
    effects: Mapping[Flow, Effects],
) -> None:
    asked = 0.0
    sharing: list[str] = []
    unsure: dict[str, float] = {}
    together: dict[str, dict[str, float]] = {}
    for rule, number in packed.targets.items():
        facts = at.facts[rule]
        if not facts.writes_targets:
            continue
        concerned = [shape for shape in shapes if any(pieces.rule == rule for pieces in shape.pieces)]
        gone = all(owner[shape].kind == REMOVE for shape in concerned)
        others = _others(at, facts, {shape: shapes[shape] for shape in concerned})
        asked += number + others
        if others > LITTLE:
            why = "targets of the same sources that stay as they are: looked at again, and found as they should be"
            cost.terms.append(Term((rule,), "in vain", others, why, write_units=1, calls=float(facts.alone)))
            unsure[rule] = unsure.get(rule, 0.0) + others
        sharing.append(rule)
        cost.pieces[rule] = cost.pieces.get(rule, 0.0) + sum(shapes[shape] for shape in concerned)
        own = at.different(facts) is None
        fresh = own and facts.creates and all(owner[shape].kind == INSERT for shape in concerned)
        if not facts.alone:
            together.setdefault(facts.into, {})[rule] = number + others
        made = _published(at, facts, number, cost, fresh=fresh, emptied=own and gone)
        effects[owner[concerned[0]]].add(made, number)
    for facts, again in _unchanged(at, shapes, owner, packed):
        asked += again
        sharing.append(facts.name)
        queried(at, facts, again, cost)
        if not facts.alone:
            numbers = together.setdefault(facts.into, {})
            numbers[facts.name] = numbers.get(facts.name, 0.0) + again
        why = "targets of the same sources to which an edit makes no difference: looked at again"
        cost.terms.append(Term((facts.name,), "in vain", again, why, write_units=1, calls=float(facts.alone)))
        unsure[facts.name] = unsure.get(facts.name, 0.0) + again
    _batches(together, cost)
    _looks(at, unsure, cost)
    if asked > LITTLE:
        why = f"the groups of {asked:.4g} targets, at most {KEYS_PER_REQUEST} a call"
        rules = tuple(sharing)
        cost.terms.append(Term(rules, "group read", asked, why, read_units=1))
        cost.terms.append(Term(rules, "group read", batched(asked), why, calls=1))


def _batches(together: Mapping[str, Mapping[str, float]], cost: BatchCost) -> None:
    """The calls of publishes that share calls, given their numbers by entity and rule.

    No item is in a batch twice: where several rules have the same targets, as is assumed of those of one entity, each has a
    batch of its own, in which it meets the rules of other entities.
    """
    ranked = [sorted(numbers.values(), reverse=True) for numbers in together.values()]
    rules = tuple(rule for numbers in together.values() for rule in numbers)
    for numbers in zip_longest(*ranked, fillvalue=0.0):
        if sum(numbers) > LITTLE:
            why = f"{BATCH_STATEMENTS} targets a call"
            cost.terms.append(Term(rules, "publish", batched(sum(numbers), BATCH_STATEMENTS), why, calls=1))


def _looks(at: Context, unsure: Mapping[str, float], cost: BatchCost) -> None:
    """Reading targets whose statement was not done: of an entity with `match`, no condition is exact for every item."""
    facts = [at.facts[rule] for rule, number in unsure.items() if number > LITTLE]
    looked = [one for one in facts if not one.alone and at.program.entities[one.into].pattern is not None]
    why = "targets whose update was not done are read: `match` may fit where its condition does not hold"
    for one in looked:
        cost.terms.append(Term((one.name,), "look", unsure[one.name], why, read_units=at.read(one.into)))
    if looked:
        calls = batched(sum(unsure[one.name] for one in looked))
        cost.terms.append(Term(tuple(one.name for one in looked), "look", calls, why, calls=1))


def _unchanged(
    at: Context, shapes: Mapping[Shape, float], owner: Mapping[Shape, Flow], packed: Packed
) -> Iterator[tuple[RuleFacts, float]]:
    """Rules that an edit does not concern while it concerns others of its source: whose entry changes, all its targets
    are published. Each with the number of targets that nothing else of the batch publishes.
    """
    numbers: dict[str, float] = {}
    for shape, count in shapes.items():
        if owner[shape].kind != EDIT:
            continue
        concerned = {pieces.rule for pieces in shape.pieces}
        for facts in at.from_entity.get(owner[shape].entity, ()):
            if facts.ledger and facts.writes_targets and facts.name not in concerned:
                elements = at.assumed.elements_of(facts.name) if facts.rule.each is not None else 1.0
                share = min(1.0, at.assumed.share(facts.name) / max(map(at.assumed.share, concerned)))
                numbers[facts.name] = numbers.get(facts.name, 0.0) + count * share * elements
    for rule, number in numbers.items():
        facts = at.facts[rule]
        different = at.different(facts)
        left = number if different is None else min(number, different - packed.targets.get(rule, 0.0))
        if left > LITTLE:
            yield facts, left


def _others(at: Context, facts: RuleFacts, shapes: Mapping[Shape, float]) -> float:
    """Targets that sources keep while they leave others: an entry that owes a publication is published as a whole."""
    if facts.rule.each is None:
        return 0.0
    leaving = sum(n for shape, n in shapes.items() for p in shape.pieces if p.rule == facts.name and p.twice)
    number = leaving * (round(at.assumed.elements_of(facts.name)) - 1)
    different = at.different(facts)
    return number if different is None else min(number, different)


def _published(at: Context, facts: RuleFacts, number: float, cost: BatchCost, *, fresh: bool, emptied: bool) -> Flow:
    """Writing what groups say; the change that comes of it."""
    entity = facts.into
    gone = emptied and facts.creates
    claim = isinstance(facts.rule, CopyRule)
    queried(at, facts, number, cost)
    why = "one for each different target of the batch, however many events it has"
    if not (gone and claim):
        inside: Mapping[str, float] = {} if fresh else at.settled(entity)
        at.written(cost, facts.name, "publish", entity, number, inside, facts.writes, why, calls=facts.alone)
    if gone:
        left = Flow(entity, REMOVE)
        at.deleted(cost, facts.name, entity, number, "nothing contributes to it any more")
        return left
    if fresh:
        return Flow(entity, INSERT, fresh=True, by=(facts.name,))
    return Flow(entity, EDIT, facts.writes)


def queried(at: Context, facts: RuleFacts, number: float, cost: BatchCost) -> None:
    """The queries for members that publishing so many targets takes."""
    if facts.queries:
        limit = facts.rule.limit if isinstance(facts.rule, PickRule) else 1
        units = read_units(round(limit * at.member_bytes(facts)))
        why = f"{facts.queries} for each target: the first {limit} in order"
        cost.terms.append(Term((facts.name,), "query", number * facts.queries, why, read_units=units, calls=1))


def batched(number: float, most: int = KEYS_PER_REQUEST) -> float:
    """Calls for so many keys; less than one key, on average, is less than one call."""
    return math.ceil(number / most) if number >= 1 else number
