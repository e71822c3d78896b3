"""`projections init`, as one calls it, on no table and on tables of DynamoDB Local; then what its README says."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import init_tables
import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.errors import UsageError
from projections.init.project import PROPOSED, project_with_example, write
from projections.init.proposal import Table
from projections.init.table_sample import describe, estimated_units, read_sample
from projections.language.keys import Schema
from projections.language.loader import load
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.schema import json_schema

ROOT = Path(__file__).parents[2]
PLUGIN = "projections.testing.plugin"

Run = Callable[..., tuple[int, str, str]]


def execute(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """In a new project, with this package on the path and no plugin of pytest but ours; not as a part of `make test`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=directory, env=environment, text=True, capture_output=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("name", "given"),
    [('"; touch owned; " $(touch owned).yaml', "environment"), ("'; $(shell touch owned); '.yaml", "arguments")],
)
def test_the_name_of_a_file_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, name: str, given: str
) -> None:
    if not shutil.which("make"):
        pytest.skip("make is not on PATH")
    write(tmp_path, project_with_example("shop"))
    (tmp_path / "rules.yaml").rename(tmp_path / name)
    (tmp_path / "template.yaml").rename(tmp_path / f"t{name}")
    names = {"RULES": name, "TEMPLATE": f"t{name}", "ARTIFACTS_DIR": str(tmp_path / f"built {name}")}
    python = tmp_path / "python"  # writes down what it is called with, and tells where the package is
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\nprintf "%s\\n" "$@" >> {tmp_path}/calls\n'
    )
    python.chmod(0o755)
    arguments = [f"PYTHON={python}"]
    if given == "environment":
        for variable, value in names.items():
            monkeypatch.setenv(variable, value)
    else:
        arguments += [f"{variable}={value}" for variable, value in names.items()]
    execute(
        tmp_path, "make", "template", "template-agrees", "build-WorkerFunction", *arguments
    )  # ends where nothing was packed
    calls = (tmp_path / "calls").read_text()
    for words in (
        ("projections", "template", "-o", "template.yaml", "--", name),
        ("projections", "check", "--template", f"t{name}", "--", name),
        ("projections.deploy.package", name, names["ARTIFACTS_DIR"]),
    ):
        assert "\n".join(["-m", *words, "-m"]) in calls
    with chdir(tmp_path):
        assert run("check", "--template", f"t{name}", "--", name)[0] == 0
        assert run("template", "-o", "template.yaml", "--", name)[0] == 0
    assert not (tmp_path / "owned").exists()


def test_a_name_with_a_line_end_adds_no_line_to_a_template() -> None:
    program = Program.from_document(load(ROOT / "projections/init/example/rules.yaml").document())
    text = sam_template(Deployment("a\nResources: $(touch owned)", program))
    (line,) = [line for line in text.splitlines() if "touch owned" in line]
    assert line == "# Written by `projections template 'a\\u000aResources: $(touch owned)'`."


def all_passes(directory: Path, run: Run) -> None:
    """check and the tests of a new project."""
    with chdir(directory):
        assert run("check")[0] == 0
        assert run("check", "--template", "template.yaml")[0] == 0
    tested = execute(directory, sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "-q")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_build_without_this_package_names_what_is_missing(tmp_path: Path, run: Run) -> None:
    if not shutil.which("make"):
        pytest.skip("make is not on PATH")
    run("init", tmp_path)
    elsewhere = execute(tmp_path, "make", "-n", "build-StreamFunction", "PYTHON=/bin/false")
    assert "has no dynamodb-projections" in elsewhere.stderr


@pytest.mark.deep
def test_a_forgotten_template_ends_the_build_with_the_command_that_writes_it(tmp_path: Path, run: Run) -> None:
    """Filters of the former rules would drop every record of the new entity."""
    if not shutil.which("make"):
        pytest.skip("make is not on PATH")
    run("init", tmp_path)
    build = ("make", "template-agrees", f"PYTHON={sys.executable}")
    rules = tmp_path / "rules.yaml"
    text = rules.read_text().replace(
        "\nprojections:\n", '\n  Visit: {key: {PK: "VISIT#{id}", SK: "{at}"}}\nprojections:\n'
    )
    rules.write_text(text + "\n  visits: {from: Visit, aggregate: {into: Customer, set: {visits: count}}}\n")
    forgotten = execute(tmp_path, *build)
    assert forgotten.returncode == 2, forgotten.stdout
    assert "error [filters]: no filter matches all Visit items" in forgotten.stderr
    assert "Generate it again: projections template rules.yaml -o template.yaml" in forgotten.stderr
    assert "template.yaml does not agree with rules.yaml, so nothing was built." in forgotten.stderr
    for other in ("TEMPLATE=", "TEMPLATE=none.yaml"):
        assert execute(tmp_path, *build, other).returncode == 0


def test_existing_files_are_overwritten_only_with_force(tmp_path: Path, run: Run) -> None:
    (tmp_path / "README.md").write_text("mine")
    code, _, err = run("init", tmp_path)
    assert code == 2
    assert "README.md exists already, so nothing was written" in err
    assert "--force" in err
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert run("init", tmp_path, "--force")[0] == 0
    assert (tmp_path / "README.md").read_text() != "mine"


def test_a_directory_that_is_a_file_or_cannot_be_written(tmp_path: Path, run: Run) -> None:
    (tmp_path / "shop").write_text("")
    code, _, err = run("init", tmp_path / "shop")
    assert (code, "a file has the name of a directory that is needed" in err) == (2, True)
    blocked = tmp_path / "blocked"
    blocked.symlink_to(tmp_path / "no" / "where")
    with pytest.raises(UsageError, match="cannot be written"):
        write(blocked, {"a": ""})


# --- a table ---


@pytest.fixture
def tables(dynamodb_local_url: str) -> Iterator[Callable[[Table, Sequence[init_tables.Item]], list[str]]]:
    """Fills tables on DynamoDB Local; gives the options that name them. They are deleted in the end."""
    dynamodb = client(endpoint_url=dynamodb_local_url)
    made: list[str] = []

    def fill(table: Table, items: Sequence[init_tables.Item]) -> list[str]:
        partition, *sort = table.key
        schema = Schema(partition, sort[0] if sort else None, table.indexes, table.ttl)
        create_table(dynamodb, table.name, schema)
        made.append(table.name)
        for start in range(0, len(items), 25):
            requests: Any = [{"PutRequest": {"Item": one}} for one in items[start : start + 25]]
            dynamodb.batch_write_item(RequestItems={table.name: requests})
        return ["--table", table.name, "--endpoint-url", dynamodb_local_url]

    yield fill
    for name in made:
        delete_table(dynamodb, name)


def in_order(items: Sequence[Any]) -> list[Any]:
    return sorted(items, key=lambda one: json.dumps(one, sort_keys=True))


def stored(name: str, url: str) -> list[Any]:
    return in_order(client(endpoint_url=url).scan(TableName=name)["Items"])


@pytest.mark.deep
def test_a_proposal_for_a_table_passes_all_that_it_has(
    tmp_path: Path, run: Run, tables: Any, dynamodb_local_url: str
) -> None:
    """Users, posts, likes, comments and orders; counters and names kept by hand. The table is as it was."""
    options = tables(init_tables.INDEXED, init_tables.social(20, types=True))
    before = stored("app", dynamodb_local_url)
    code, out, err = run("init", tmp_path / "new", *options)
    assert code == 0, err
    assert re.search(r"Reading about \d+ items of app: about", err), err
    assert "read units" in err
    assert f"Read {len(before)} items (all)" in out
    assert "Nothing was written to the table" in out
    assert "likeCount is the number of Like items in" in out
    assert stored("app", dynamodb_local_url) == before
    all_passes(tmp_path / "new", run)
    settings = (tmp_path / "new" / "samconfig.toml").read_text()
    assert "ExistingTableName=app ExistingStreamArn=arn:aws:dynamodb:" in settings


def test_held_rules_find_a_wrong_counter(tmp_path: Path, run: Run, tables: Any, dynamodb_local_url: str) -> None:
    """What rules.yaml says of itself: apply, and verify compares with what the application wrote by hand."""
    items = init_tables.social(6)
    options = tables(init_tables.INDEXED, items)
    dynamodb = client(endpoint_url=dynamodb_local_url)
    assert run("init", tmp_path / "new", *options)[0] == 0
    (wrong, *_) = [one for one in items if "likeCount" in one]
    dynamodb.put_item(TableName="app", Item={**wrong, "likeCount": {"N": "99"}})
    create_table(dynamodb, "ledger", LEDGER_SCHEMA, stream=False)
    try:
        rules, live = tmp_path / "new" / "rules.yaml", [*options, "--ledger", "ledger", "--json"]
        assert run("apply", rules, *live)[0] == 0
        code, out, _ = run("verify", "--rules", rules, *live, "--patience", 0)
    finally:
        delete_table(dynamodb, "ledger")
    (drift,) = json.loads(out)["drift"]
    assert (code, drift["rule"], drift["attribute"], drift["unpublished"]) == (1, "likesOfPost.1", "likeCount", True)
    as_left = [{**one, "likeCount": {"N": "99"}} if one is wrong else one for one in items]
    assert stored("app", dynamodb_local_url) == in_order(as_left)


def test_uncertain_rules_are_listed(tmp_path: Path, run: Run, tables: Any) -> None:
    items = init_tables.social(8)
    wrong = sorted((one for one in items if "likeCount" in one), key=lambda one: one["PK"]["S"])[:2]
    for one in wrong:
        one["likeCount"] = {"N": str(int(one["likeCount"]["N"]) + 3)}
    options = tables(init_tables.INDEXED, items)
    code, out, _ = run("init", tmp_path, *options)
    assert code == 0
    shown = out[out.index("uncertain  ") :].splitlines()
    counts = [int(one["likeCount"]["N"]) for one in wrong]
    assert [line.strip() for line in shown[1:4]] == [
        *(f"- {one['PK']['S']} METADATA: stored {n}, computed {n - 3}" for one, n in zip(wrong, counts, strict=True)),
        "Published, it would change likeCount of 2 Post items.",
    ]
    (rule,) = [
        one
        for one in json.loads(run("init", tmp_path, *options, "--force", "--json")[1])["rules"]
        if one["state"] == "uncertain"
    ]
    assert (rule["name"], rule["contradiction"]["changes"]) == ("likesOfPost", 2)


def test_numeric_keys_and_no_structure_give_working_projects(tmp_path: Path, run: Run, tables: Any) -> None:
    for table, items in (init_tables.readings(), init_tables.junk()):
        code, out, err = run("init", tmp_path / table.name, *tables(table, items))
        assert code == 0, err
        assert ("No structure was recognised" in out) == (table.name == "junk")
        made = tmp_path / table.name
        assert run("check", made / "rules.yaml")[0] == 0
        (named,) = re.findall(r"\A# yaml-language-server: \$schema=(\S+)\n", (made / "rules.yaml").read_text())
        assert json.loads((made / named).read_text()) == json_schema()
    tested = execute(made, sys.executable, "-m", "pytest", "-p", PLUGIN, "-q")
    assert tested.returncode == 0, tested.stdout
    code, _, err = run("simulate", "--rules", made / "rules.yaml")
    assert (code, "no rules to simulate. Add rules under" in err) == (2, True)


def test_json_has_the_proposal_and_its_cost(tmp_path: Path, run: Run, tables: Any) -> None:
    table, items = init_tables.tenants()
    code, out, err = run("init", tmp_path, *tables(table, items), "--json")
    said = json.loads(out)
    assert (code, err) == (0, "")
    assert [one["name"] for one in said["entities"]] == ["User", "Project"]
    assert said["readUnits"]["consumed"] > 0
    assert said["readUnits"]["requests"] >= 16
    assert [(one["name"], one["state"]) for one in said["rules"]] == [("projectsOfUser", "held")]
    assert {name for name in said["files"] if not name.startswith("vendor/")} == set(PROPOSED)


def test_a_small_sample_is_small_and_from_all_over_the_table(tables: Any, dynamodb_local_url: str) -> None:
    items = init_tables.social(40)
    tables(init_tables.INDEXED, items)
    dynamodb = client(endpoint_url=dynamodb_local_url)
    pauses = list[float]()
    sample = read_sample(dynamodb, "app", 128, 10.0, pauses.append)
    assert (len(sample.items), sample.complete) == (128, False)
    whole = {name for name in {one["PK"]["S"] for one in sample.items} if sample.has_all_of(name)}
    assert whole
    for name in whole:
        counts = [sum(one["PK"]["S"] == name for one in some) for some in (sample.items, items)]
        assert counts[0] == counts[1]
    assert len({one["PK"]["S"] for one in sample.items}) > 16
    assert sum(pauses) == pytest.approx(sample.units / 10, abs=0.2)
    table = describe(dynamodb, "app")
    assert sample.units <= estimated_units(table, 128) <= 3 * sample.units


# --- bad input ---


def test_a_table_that_is_not_there_and_one_that_is_empty(
    tmp_path: Path, run: Run, tables: Any, dynamodb_local_url: str
) -> None:
    options = tables(Table("nothing-in-it", (("id", "S"),)), [])
    code, _, err = run("init", tmp_path / "new", *options)
    assert (code, "table nothing-in-it is empty, so no rules can be inferred" in err) == (2, True)
    code, _, err = run("init", tmp_path / "new", "--table", "nothing", "--endpoint-url", dynamodb_local_url)
    assert code == 2
    assert f"there is no table nothing at {dynamodb_local_url}, us-east-1. Check name" in err
    assert not (tmp_path / "new").exists()


def test_nothing_is_read_where_nothing_would_be_written(tmp_path: Path, run: Run) -> None:
    (tmp_path / "rules.yaml").write_text("")
    code, _, err = run("init", tmp_path, "--table", "app", "--endpoint-url", "http://127.0.0.1:1")
    assert (code, "rules.yaml exists already, so nothing was written" in err) == (2, True)


class _Refusing:
    """A client whose credentials may do less than they should."""

    class meta:  # noqa: N801 - as botocore calls it
        endpoint_url = "https://dynamodb.eu-west-1.amazonaws.com"
        region_name = "eu-west-1"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def describe_table(self, **request: Any) -> Any:
        raise self._error

    scan = describe_table


@pytest.mark.parametrize("code", ["AccessDeniedException", "ExpiredTokenException"])
def test_credentials_that_do_not_suffice(code: str) -> None:
    error = ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeTable")
    with pytest.raises(UsageError, match=rf"table app: .*{code}"):
        describe(_Refusing(error), "app")
    with pytest.raises(UsageError, match=rf"table app: .*{code}"):
        read_sample(_Refusing(error), "app", 10, 10.0, lambda _: None)


def test_no_credentials_and_no_region(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="table app: no AWS credentials"):
        describe(_Refusing(NoCredentialsError()), "app")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    code, _, err = run("init", tmp_path, "--table", "app")
    assert (code, "pass --region NAME" in err) == (2, True)


def write_metadata(directory: Path, monkeypatch: pytest.MonkeyPatch, origin: object) -> None:
    """Make the metadata of version 7.8 of this package, and of where pip got it, the first on the path."""
    information = directory / "dynamodb_projections-7.8.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.4\nName: dynamodb-projections\nVersion: 7.8\n")
    if origin:
        (information / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(directory)


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "dynamodb-projections[test]==7.8"),
        (
            {"url": "https://example.org/p.whl", "archive_info": {}},
            "dynamodb-projections[test] @ https://example.org/p.whl",
        ),
        (
            {"url": "https://example.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "dynamodb-projections[test] @ git+https://example.org/p.git@ab12",
        ),
    ],
    ids=["an index", "an address", "a repository"],
)
def test_a_project_requires_what_made_it(
    origin: object, requirement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_metadata(tmp_path, monkeypatch, origin)
    assert project_with_example("shop")["requirements.txt"] == f"{requirement}\n"


def test_a_project_of_a_version_from_this_machine_contains_its_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_metadata(tmp_path, monkeypatch, {"url": "file:///gone", "dir_info": {"editable": True}})
    files = project_with_example("shop")
    assert str(files["requirements.txt"]).splitlines()[1:] == [
        "./vendor/dynamodb_projections-7.8-py3-none-any.whl[test]"
    ]
    content = files["vendor/dynamodb_projections-7.8-py3-none-any.whl"]
    assert isinstance(content, bytes)
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        names = set(wheel.namelist())
    assert {"projections/deploy/build.mk", "projections/deploy/handlers/stream.py", "projections/py.typed"} < names
    assert content == project_with_example("shop")["vendor/dynamodb_projections-7.8-py3-none-any.whl"]
