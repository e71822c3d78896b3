"""Runs the measurements, prints tables, writes `.bench/results.json`."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import cpu, units
from tests.emulators import ministack, running


def _show(title: str, rows: list[dict[str, object]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)


def main() -> int:
    found = cpu.measure_all()
    ours = found[0].microseconds
    cpu_rows: list[dict[str, object]] = [
        {
            "way": way.way,
            "µs CPU per event": round(way.microseconds, 1),
            "times ours": round(way.microseconds / ours, 1),
        }
        for way in found
    ]
    _show("CPU per event: 1000 likes of 10 posts, HTTP answered by a stub", cpu_rows)
    with running(ministack) as endpoint:
        unit_rows: list[dict[str, object]] = [dict(case.row) for case in units.measure_all(endpoint)]
    _show("Units and calls per event, from MiniStack's consumed capacity", unit_rows)
    results = Path(".bench/results.json")
    results.parent.mkdir(exist_ok=True)
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    results.write_text(json.dumps({"machine": machine, "cpu": cpu_rows, "units": unit_rows}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
