"""Build hook of hatchling: links of README.md are absolute in the long description, because PyPI shows no other files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description. GitHub Actions names the repository; without its name, links to files are only text."""
        repository = os.environ.get("GITHUB_REPOSITORY")

        def absolute(match: re.Match[str]) -> str:
            image, words, file = match.groups()
            if not repository:
                return "" if image else words
            place = f"https://github.com/{repository}/{'raw' if image else 'blob'}/v{metadata['version']}"
            return f"{image}[{words}]({place}/{file})"

        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = re.sub(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", absolute, text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
