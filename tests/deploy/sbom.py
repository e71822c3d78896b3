"""The software bill of materials of the functions' package, and the page of its licences.

    make sbom      # writes handlers/sbom.cdx.json and docs/licences.md

Reads what `cyclonedx-py environment` prints for an environment installed from the locks. Adds which parts are optional.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["BOM", "LOCKS", "PAGE", "licences", "named", "page", "pins"]

ROOT = Path(__file__).parents[2]
BOM = ROOT / "handlers/sbom.cdx.json"
PAGE = ROOT / "docs/licences.md"
LOCKS = {
    "functions": ROOT / "handlers/requirements.txt",
    "boto3": ROOT / "handlers/requirements-boto3.txt",
    "tracing": ROOT / "handlers/requirements-tracing.txt",
    "build": ROOT / "requirements-build.txt",
    "cli": ROOT / "requirements-cli.txt",
}
"""The lock of each dependency group in pyproject.toml, and of the project's own dependencies (`cli`)."""

_PACKAGED = {"functions": "always", "boto3": "with `BUNDLE_BOTO3=1`", "tracing": "with `TRACING=1`"}
_HEAD = """# Licences

`sam build` copies this library (Apache-2.0) and the packages below into the functions' package, in these versions,
[locked](../handlers/requirements.txt) with hashes. Each has its licence text in its `.dist-info` directory. boto3 is part
of the Lambda runtime unless you set `BUNDLE_BOTO3=1`. [The SBOM](../handlers/sbom.cdx.json) lists the same packages in
CycloneDX format. It is in the functions' package too, as `handlers/sbom.cdx.json`. `make sbom` writes
this page and the SBOM.

| package | version | licence | in the package |
| --- | --- | --- | --- |
"""


def pins(lock: Path) -> dict[str, Requirement]:
    """Canonical name → pinned requirement, without hashes. Raises ValueError for a line that has none."""
    found = {}
    for entry in lock.read_text().replace("\\\n", " ").splitlines():
        if not entry or entry.lstrip().startswith("#"):
            continue
        text, *hashes = entry.split(" --hash=sha256:")
        if not hashes:
            raise ValueError(f"{lock.name}: no hash in {entry!r}; run `make lock`")
        requirement = Requirement(text.strip())
        found[canonicalize_name(requirement.name)] = requirement
    return found


def named(bom: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Canonical name → component."""
    return {canonicalize_name(one["name"]): one for one in bom["components"]}


def licences(component: Mapping[str, Any]) -> list[str]:
    """The declared licences: SPDX identifiers or expressions, or the end of a trove classifier."""
    found = []
    for one in component.get("licenses", ()):
        licence = one.get("license", {})
        name = one.get("expression") or licence.get("id") or licence["name"].rpartition(" :: ")[2]
        found.append(name)
    return found


def page(bom: Mapping[str, Any]) -> str:
    locked = {group: pins(LOCKS[group]) for group in _PACKAGED}
    rows = []
    for name, component in sorted(named(bom).items()):
        when = " or ".join(said for group, said in _PACKAGED.items() if name in locked[group])
        when = "always" if when.startswith("always") else when
        rows.append(f"| {name} | {component['version']} | {', '.join(licences(component))} | {when} |\n")
    return _HEAD + "".join(rows)


def _main() -> None:
    bom = json.load(sys.stdin)
    always = pins(LOCKS["functions"])
    for name, component in named(bom).items():
        component["scope"] = "required" if name in always else "optional"
    for tool in bom["metadata"]["tools"]["components"]:
        tool.pop("externalReferences", None)  # where cyclonedx-py itself comes from is no part of the package
    BOM.write_text(json.dumps(bom, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(bom))


if __name__ == "__main__":
    _main()
