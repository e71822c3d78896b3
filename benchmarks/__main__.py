"""All measurements: prints their tables and writes them to a file: `python -m benchmarks [--sources N] [--json FILE]`.

`--sources` is how many source items tables grow to: 100,000 if nothing is said. A million take half an hour and 2 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import cold, cpu, growth, profile, throughput, units
from benchmarks.figures import Figure, as_json, commit, lines
from tests import emulators

_SOURCES = 100_000
_RESULTS = Path(".bench/results.json")
_PACKAGES = ("dynamodb-projections", "boto3", "botocore", "aws-lambda-powertools")


def _beside_others() -> Iterator[Figure]:
    """What has a column for each way."""
    _say("units and calls")
    with emulators.running(emulators.dynamodb_local) as local, emulators.running(emulators.ministack) as endpoint:
        yield from units.figures(units.measure_all(local), units.measure_all(endpoint))
    _say("CPU")
    yield from cpu.figures(cpu.measure_all())
    for name, emulator in (("DynamoDB Local", emulators.dynamodb_local), ("MiniStack", emulators.ministack)):
        _say(f"throughput and latency on {name}")
        try:
            with emulators.running(emulator) as endpoint:
                yield from throughput.measure(name, endpoint, 1000)
        except emulators.Unavailable as error:
            print(f"{name}: {error}", file=sys.stderr)


def _alone() -> Iterator[Figure]:
    """What is ours, or a comparison of two."""
    _say("cold start, profile")
    found = cold.measure()
    milliseconds = "milliseconds of CPU from the first import to the first answer"
    for case, value in (
        ("the stream's handler", found.ours),
        ("a handler that only writes one item with boto3", found.plain),
        ("the same, with Powertools' logger and metrics", found.logged),
    ):
        yield Figure("cold start", milliseconds, case, "value", value)
    yield Figure("cold start", "times", "ours to the handler that only writes", "value", found.ratio)
    for share in profile.measure():
        yield Figure("where a batch's CPU goes, HTTP stubbed", "percent", share.part, "value", share.percent)


def _grown(sources: int) -> Iterator[Figure]:
    _say(f"growth to {sources:,} source items")
    yield from growth.figures(growth.measure(sources))


def _say(what: str) -> None:
    print(f"measuring {what} …", file=sys.stderr, flush=True)


def _told(figures: Iterable[Figure], title: str) -> list[Figure]:
    found = list(figures)
    print(f"\n{title}\n", *lines(found), sep="\n", flush=True)
    return found


def _machine() -> dict[str, Any]:
    """What the times depend on; `load` is the number of processes that wanted a core in the last minute."""
    information = Path("/proc/cpuinfo")
    models = (
        [line for line in information.read_text().splitlines() if "model name" in line] if information.exists() else []
    )
    return {
        "system": platform.platform(),
        "architecture": platform.machine(),
        "processor": models[0].partition(":")[2].strip() if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": round(os.getloadavg()[0], 2),
    }


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
        "ministack": emulators.MINISTACK,
        "dynamodb_local": emulators.DYNAMODB_LOCAL,
        "commit": commit(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--sources", type=int, default=_SOURCES, metavar="N", help="grow tables to N items (100,000)")
    parser.add_argument("--json", type=Path, default=_RESULTS, metavar="FILE", help=f"where to write ({_RESULTS})")
    given = parser.parse_args(arguments)
    started = datetime.now(UTC)
    results: dict[str, Any] = {
        "date": started.isoformat(timespec="seconds"),
        "machine": _machine(),
        "versions": _versions(),
    }
    print(json.dumps(results, indent=2, ensure_ascii=False))
    parts: dict[str, Callable[[], Iterable[Figure]]] = {
        "An event, beside what one would write instead; ours in batches of 100 and of 1000": _beside_others,
        "Ours alone": _alone,
        "As the source items grow in number": lambda: _grown(given.sources),
    }
    figures = [figure for title, measure in parts.items() for figure in _told(measure(), title)]
    results["seconds"] = round((datetime.now(UTC) - started).total_seconds())
    results["figures"] = as_json(figures)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    print(f"\n{given.json} has it all; it took {results['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
