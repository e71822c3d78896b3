"""The order of the house: imports go downwards, and what is cited exists."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from emulators import ROOT

PACKAGES = (
    "language",
    "engine",
    "stores",
    "operations",
    "aws",
    "local",
    "access",
    "deploy",
    "inspect",
    "init",
    "testing",
    "dev",
    "console",
    "cli",
)
"""From the ground up: each may import from itself and from those before it."""

GROUND = {"errors", "printable"}
"""Modules that all may import. `terminal` prints, so only `dev` and `cli` may; `api` is above `inspect`."""


def imports() -> Iterator[tuple[Path, str, str]]:
    """Each import of our own by a module: its file, its package, and the package or module below `projections` it names."""
    for path in sorted((ROOT / "projections").rglob("*.py")):
        package = path.relative_to(ROOT / "projections").parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = node.module == "projections"
                names = [f"projections.{alias.name}" for alias in node.names] if whole else [node.module]
            for name in names:
                if name.startswith("projections.") and name != "projections.__version__":
                    yield path.relative_to(ROOT), package, name.split(".")[1]


def test_imports_go_downwards() -> None:
    allowed = {package: {*GROUND, *PACKAGES[: number + 1]} for number, package in enumerate(PACKAGES)}
    for package in ("testing", "dev", "cli"):
        allowed[package].add("api")
    for package in ("dev", "cli"):
        allowed[package].add("terminal")
    allowed |= {"api": allowed["inspect"], "cdk": allowed["deploy"], "__init__": {*GROUND, "api", *PACKAGES}}
    allowed |= {"terminal": {"printable"}, "printable": set(), "errors": set(), "__main__": {"cli"}, "rules": set()}
    wrong = [f"{path} imports {name}" for path, package, name in imports() if name not in allowed.get(package, set())]
    assert wrong == []


def test_every_write_of_the_engine_and_of_operations_has_a_purpose() -> None:
    """Observers read why a write is made; one without a purpose is taken for a write of the application."""
    wrong = []
    for path in sorted(
        path for part in ("engine", "operations") for path in (ROOT / "projections" / part).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Update", "Delete"):
                given = {word.arg for word in node.keywords}
                if "purpose" not in given and not (node.func.id == "Delete" and len(node.args) == 3):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_the_packages_are_those_that_the_library_lists() -> None:
    import projections

    found = {path.name for path in (ROOT / "projections").iterdir() if (path / "__init__.py").exists()}
    assert found == {*PACKAGES, "rules"}
    assert re.findall(r"^- `(\w+)`:", projections.__doc__ or "", re.MULTILINE) == list(PACKAGES)


CEILINGS = {
    "projections/access": (2489, 9),
    "projections/aws": (1720, 8),
    "projections/cli": (5934, 24),
    "projections/console": (266, 3),
    "projections/deploy": (2046, 9),
    "projections/dev": (736, 4),
    "projections/engine": (10662, 31),
    "projections/init": (3283, 15),
    "projections/inspect": (8042, 31),
    "projections/language": (17242, 65),
    "projections/local": (1735, 8),
    "projections/operations": (7134, 28),
    "projections/stores": (2098, 8),
    "projections/testing": (9096, 35),
    "tests": (51999, 242),
}
"""The most lines and files of Python. They only fall: who deletes lowers them, and who adds finds what to delete."""
WORDS = 67706  # of docs/, the most


def test_no_package_grows() -> None:
    for name, (lines, files) in CEILINGS.items():
        texts = [path.read_text(encoding="utf-8") for path in (ROOT / name).rglob("*.py")]
        found = sum(len(text.splitlines()) for text in texts), len(texts)
        assert (max(found[0], lines), max(found[1], files)) == (lines, files), f"{name} grew: delete as much there"
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in (ROOT / "docs").rglob("*.md"))
    assert words <= WORDS, f"docs/ grew to {words} words: delete as many there"


VAGUE = {"one", "ones", "found", "given", "told", "some", "no", "said"}
PARTICIPLE = re.compile(r"_*([a-z]+ed|found|given|held|kept|known|left|made|said|sent|shown|taken|told|written)")
VERBS = {"_embed", "_need", "given", "need", "seed"}
"""No participles; `given` of `Scenario` goes with `when` and `then`."""
NAMES = {"language": (355, 79)}
"""The most uses of vague variables in a package, and of functions named by a participle; none elsewhere. They only fall."""


def test_variables_are_named_for_what_they_hold_and_functions_for_what_they_do() -> None:
    uses: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for path in (ROOT / "projections").rglob("*.py"):
        package = path.relative_to(ROOT / "projections").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name | ast.arg):
                uses[package] += (node.id if isinstance(node, ast.Name) else node.arg) in VAGUE
            elif isinstance(node, ast.FunctionDef) and PARTICIPLE.fullmatch(node.name) and node.name not in VERBS:
                functions[package] += not any("property" in ast.unparse(each) for each in node.decorator_list)
    for package in uses.keys() | functions.keys():
        most = NAMES.get(package, (0, 0))
        assert (max(uses[package], most[0]), max(functions[package], most[1])) == most, package


CITED = re.compile(r"`((?:projections|tests|docs|handlers|events|benchmarks)/[\w./-]*\w/?)`")


def test_files_that_are_cited_exist() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True).stdout.split(
        "\n"
    )
    texts = [name for name in listed if name.endswith((".py", ".md", ".yaml", ".toml", "Makefile"))]
    wrong = []
    for name in texts:
        if not (ROOT / name).is_file() or name.startswith("tests/goldens/"):
            continue
        for cited in CITED.findall((ROOT / name).read_text(encoding="utf-8")):
            if "*" not in cited and not (ROOT / cited).exists():
                wrong.append(f"{name}: {cited}")
    assert wrong == []
