"""Where the CPU of a batch goes: `python -m benchmarks.profile`. Shares of a profile, which makes calls look dearer."""

from __future__ import annotations

import cProfile
import json
import pstats
from dataclasses import dataclass

from benchmarks.cpu import ours
from benchmarks.workload import likes

__all__ = ["Share", "measure"]

_PARTS = (
    ("botocore: a request's headers, signature, answer", ("/botocore/", "/urllib3/", "/email/")),
    ("decoding records", ("/engine/records",)),
    ("what the rules make of items", ("/language/",)),
    ("planning", ("/engine/plan", "/engine/embeds", "/engine/copies", "/engine/processor")),
    ("the ledger: differences, transactions", ("/engine/",)),
    ("requests as text", ("/projections/stores/", "/json/")),
)


@dataclass(frozen=True, slots=True)
class Share:
    part: str
    percent: float


def measure(batches: int = 5) -> list[Share]:
    """The parts of batches of 1000 likes of 10 posts, the greatest first."""
    process = ours()
    made = [json.loads(json.dumps(likes(1000, 10, first=turn * 1000))) for turn in range(batches + 1)]
    process(made[0])
    profile = cProfile.Profile(builtins=False)  # what is built in counts for its caller
    profile.enable()
    for records in made[1:]:
        process(records)
    profile.disable()
    spent: dict[str, float] = {}
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        part = next((name for name, places in _PARTS if any(place in file for place in places)), "the rest")
        spent[part] = spent.get(part, 0.0) + own
    total = sum(spent.values())
    return [Share(part, 100 * own / total) for part, own in sorted(spent.items(), key=lambda each: -each[1])]


if __name__ == "__main__":
    for share in measure():
        print(f"{share.percent:5.1f} %  {share.part}")
