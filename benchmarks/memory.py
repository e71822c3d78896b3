"""Memory over many events: `python -m benchmarks.memory [EVENTS]`. It must stay flat."""

from __future__ import annotations

import gc
import resource
import sys

from benchmarks.cpu import ours
from benchmarks.workload import likes

__all__ = ["measure"]


def measure(events: int = 1_000_000, batch: int = 1000) -> list[tuple[int, float]]:
    """(events so far, greatest resident set in MB) at powers of ten, HTTP answered by a stub."""
    process = ours()
    found, seen, mark = [], 0, 10 * batch
    while seen < events:
        process(likes(batch, 10, first=seen))
        seen += batch
        if seen == mark or seen >= events:
            gc.collect()
            found.append((seen, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
            mark *= 10
    return found


if __name__ == "__main__":
    for count, megabytes in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000):
        print(f"{count:>9} events: {megabytes:.1f} MB at most")
