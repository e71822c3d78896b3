"""Chains of rules that read what other rules write: each rule is another pass through the stream."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import LONG_CHAIN, READS_DISABLED, UNUSED_WITHIN
from projections.language.ownership import EXISTS, inputs
from projections.language.ownership import chains as chains_of

__all__ = ["chains"]

_LONG = 3


def chains(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about rules at the end of a chain of three or more, and about rules that publish nothing: what reads
    from them, and limits of their freshness.
    """
    yield from _disabled(facts)
    yield from _unused_within(facts)
    for name, chain in chains_of(facts.rules).items():
        if len(chain) < _LONG:
            continue
        yield Remark(
            LONG_CHAIN,
            ("projections", name),
            f"takes effect {len(chain)} passes through the stream after the application's write "
            f"({' → '.join(chain)}): about {len(chain)} times the lag of one rule (about a second plus the batching window)",
            "if that is too slow, read from the source of the first rule instead",
            at_key=True,
        )


def _unused_within(facts: Facts) -> Iterator[Remark]:
    for name, rule in facts.projections.items():
        if rule.within is None or rule.publishes:
            continue
        state, way = ("in shadow mode", "set `mode: live`") if rule.enabled else ("disabled", "enable the rule")
        yield Remark(
            UNUSED_WITHIN,
            ("projections", name, "within"),
            f"makes no alarm while the rule is {state}: it publishes nothing, so its freshness is not measured",
            f"{way}, or remove `within`",
            at_key=True,
        )


def _disabled(facts: Facts) -> Iterator[Remark]:
    if all(rule.enabled for rule in facts.projections.values()):
        return
    for name, given in inputs(facts.rules).items():
        for other, nodes in given.items():
            if facts.projections[other].enabled or not facts.projections[name].publishes:
                continue
            entity = facts.projections[other].into
            names = [f"{entity}.{attribute}" for _, attribute in nodes if attribute != EXISTS]
            what = ", ".join(names) if names else f"{entity} items"
            yield Remark(
                READS_DISABLED,
                ("projections", name),
                f"reads {what}, which rule {other} no longer keeps up to date, because it is disabled",
                f"enable {other}, disable {name} as well, or accept that {name} derives outdated values",
                at_key=True,
            )
