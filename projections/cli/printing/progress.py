"""A line on standard error that shows the progress of a command, on a terminal only."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from projections.terminal import console

__all__ = ["Bar"]


class Bar:
    """A moving line; `shown` is false where there is no terminal. With `counts`, it has a bar and how much is done."""

    def __init__(self, text: str, *, quiet: bool = False, counts: bool = False) -> None:
        out = console(stderr=True)
        self.shown = out.is_terminal and not quiet
        if self.shown:
            self._start(out, text, counts)

    def _start(self, out: Any, text: str, counts: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        description = TextColumn("{task.description}")
        columns = (description, BarColumn(), MofNCompleteColumn()) if counts else (SpinnerColumn(), description)
        self._progress = Progress(*columns, TimeElapsedColumn(), console=out, transient=True)
        self._task = self._progress.add_task(text, total=None)
        self._progress.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def restart(self, text: str) -> None:
        """Begin to count anew, with another text."""
        if self.shown:
            self._progress.reset(self._task, description=text, total=None)

    def update(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a text, and how much is done of how much."""
        if self.shown:
            self._progress.update(self._task, description=text, completed=done, total=total)

    def print(self, text: str) -> None:
        """Print a line above the moving one."""
        self._progress.console.print(text)

    def end(self) -> None:
        """Remove the line."""
        if self.shown:
            self._progress.stop()
            self.shown = False
