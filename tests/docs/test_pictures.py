"""The pictures of the console and of the site are in the documentation, small, and of the sizes that their script makes."""

from __future__ import annotations

import struct

import pytest
from pictures import NAMES, PHONE, PICTURES, RULES, WIDE, items

from projections.language.findings.kinds import Severity
from projections.language.review import review

PAGES = {"site": "README.md"}


@pytest.mark.parametrize("name", NAMES)
def test_picture_is_shown_and_small(name: str) -> None:
    content = (PICTURES / f"{name}.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (PHONE if name == "console-phone" else WIDE)
    assert len(content) <= 160_000
    assert f"pictures/{name}.png" in (PICTURES.parent / PAGES.get(name, "operations.md")).read_text()


def test_there_is_no_other_picture() -> None:
    assert {path.stem for path in PICTURES.iterdir()} == set(NAMES)


def test_rules_of_the_pictures_have_no_findings_and_their_items_have_entities() -> None:
    found = review(RULES, RULES.name)
    severe: tuple[Severity, ...] = ("error", "warning")
    assert [one for one in found.findings if one.severity in severe] == []
    assert found.rules is not None
    program = found.rules.completed()
    assert len({item["PK"] + item["SK"] for item in items()}) > 50
    assert {"Line", "Trip", "Ticket", "Driver", "Delay"} <= set(program.entities)
