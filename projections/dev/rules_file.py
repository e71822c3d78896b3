"""The rule file and the files that it includes, checked for changes by their times and sizes."""

from __future__ import annotations

from pathlib import Path

from projections.language.including import Watched

__all__ = ["RulesFile"]


class RulesFile:
    """Reports a change when the files have stayed the same for two looks: editors write in more than one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched = Watched(path)
        self._known = self._seen = self._watched.stamp()

    def changed(self) -> bool:
        """Return whether a file differs from the last reported state, and all are the same as at the last call."""
        stamp = self._watched.stamp()
        settled = stamp is not None and stamp == self._seen and stamp != self._known
        self._seen = stamp
        if settled:
            self._watched.refresh()
            self._known = self._seen = self._watched.stamp()
        return settled
