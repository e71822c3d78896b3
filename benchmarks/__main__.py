"""Runs the measurements, prints tables, writes `.bench/results.json`: `python -m benchmarks [SOURCES]`.

`SOURCES` is how many source items throughput grows to: 5000 if nothing is said, which takes some minutes in all; emulators
take 1 to 3 ms an event, so 100,000 take half an hour.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import cold, cpu, profile, throughput, units
from tests.emulators import Unavailable, dynamodb_local, ministack, running

_RESULTS = Path(".bench/results.json")


def _show(title: str, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = [{name: round(cell, 4) if isinstance(cell, float) else cell for name, cell in row.items()} for row in rows]
    table = Table(title=title, title_justify="left")
    for column, cell in found[0].items():
        table.add_column(column.replace("_", " "), justify="left" if isinstance(cell, str) else "right")
    for row in found:
        table.add_row(*(f"{cell:,}" if not isinstance(cell, str) else cell for cell in row.values()))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    return found


def main(sources: int) -> int:
    started = datetime.now(UTC)
    results: dict[str, Any] = {
        "date": started.date().isoformat(),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }
    results["cpu"] = _show(
        "CPU per event: 1000 likes of 10 posts, HTTP answered by a stub", cpu.rows(cpu.measure_all())
    )
    results["profile"] = _show("Where ours goes", map(asdict, profile.measure()))
    found = cold.measure()
    results["cold"] = _show(
        "Cold start: CPU until the first answer, in milliseconds", [{**asdict(found), "ratio to plain": found.ratio}]
    )
    with running(ministack) as endpoint:
        results["units"] = _show(
            "Units and calls per event, from MiniStack's consumed capacity",
            (case.row for case in units.measure_all(endpoint)),
        )
    rates: list[throughput.Rate] = []
    grown: list[throughput.Grown] = []
    for emulator in (ministack, dynamodb_local):
        name = emulator.__name__.replace("_", " ")
        try:
            with running(emulator) as endpoint:
                rates += throughput.rates(name, endpoint)
                for targets, most in throughput.TARGETS.items():
                    grown += throughput.growth(name, endpoint, min(sources, most), targets)
        except Unavailable as error:
            print(f"{name}: {error}", file=sys.stderr)
    results["throughput"] = _show("End to end on emulators, 100 likes of 10 posts a batch", map(asdict, rates))
    results["growth"] = _show("Per event, as the tables grow", map(asdict, grown))
    results["seconds"] = round((datetime.now(UTC) - started).total_seconds())
    _RESULTS.parent.mkdir(exist_ok=True)
    _RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(f"{_RESULTS} has it all; it took {results['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
