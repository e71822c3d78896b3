"""Chains of rules that read what other rules write: each rule is another pass through the stream."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import LONG_CHAIN
from projections.language.ownership import chains as chains_of

__all__ = ["chains"]

_LONG = 3


def chains(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each rule at the end of a chain of three or more."""
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
