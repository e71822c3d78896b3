"""The rule file, watched: no notification service, just a look at its time and size now and then."""

from __future__ import annotations

from pathlib import Path

__all__ = ["RulesFile"]


class RulesFile:
    """Tells when the file has changed and stands still again: editors write in more than one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = self._seen = self._stamp()

    def changed(self) -> bool:
        """Whether the file is another than at the last time this was true, and as it was at the last look."""
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
            return None  # being replaced; it will come back
        return found.st_mtime_ns, found.st_size, found.st_ino
