"""A deployment for the commands that pages show."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from place import Place


@pytest.fixture
def place(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    ministack_url: str,
) -> Place:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack_url)
    return Place(monkeypatch, capsys, tmp_path, ministack_url)
