"""The rule file, checked for changes by its time and size."""

from __future__ import annotations

from pathlib import Path

__all__ = ["RulesFile"]


class RulesFile:
    """Reports a change when the file has stayed the same for two looks: editors write in more than one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = self._seen = self._stamp()

    def changed(self) -> bool:
        """Return whether the file differs from the last reported state, and is the same as at the last call."""
        stamp = self._stamp()
        settled = stamp is not None and stamp == self._seen and stamp != self._known
        self._seen = stamp
        if settled:
            self._known = stamp
        return settled

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None  # an editor is replacing it
        return found.st_mtime_ns, found.st_size, found.st_ino
