"""A template made with --gradual: records go to the alias, which follows parameters.

MiniStack has no CodeDeploy, so the alias moves at once here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from emulators import ROOT
from sam_cli import Sam
from test_deploy import client, eventually, number, outputs, projections, read, writer

from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.language.loader import load
from projections.language.program import Program

SOCIAL = ROOT / "projections/rules/social.yaml"


def test_records_go_to_the_alias_and_a_parameter_alone_moves_it(sam: Sam, built: Path, tmp_path: Path) -> None:
    package, template = tmp_path / "package", tmp_path / "template.yaml"
    shutil.copytree(built, package)
    text = sam_template(Deployment(str(SOCIAL), Program.from_document(load(SOCIAL).document()), gradual=True))
    for ours, here in (
        ("CodeUri: .\n", f"CodeUri: {package}\n"),
        ("DeploymentPreference:\n", "DeploymentPreference:\n        Enabled: false\n"),
        # MiniStack shows another stream label in each poll.
        ("RULES_FILE: ", 'STREAM_LABEL: "2026-01-01T00:00:00.000"\n        RULES_FILE: '),
    ):
        assert ours in text
        text = text.replace(ours, here)
    template.write_text(text)
    sam.deploy("gradual", template, BatchingWindowSeconds="0", AuditSchedule="off")
    names, functions = outputs("gradual", sam.endpoint), client(sam.endpoint, "lambda")
    alias = names["StreamFunctionAlias"]
    assert alias.endswith(f":{names['StreamFunctionName']}:current")

    def runs() -> tuple[str, dict[str, str]]:
        """The version that the alias points to, and its environment."""
        found = functions.get_function(FunctionName=alias)["Configuration"]
        return found["Version"], found["Environment"]["Variables"]

    def like(user: str, likes: int) -> None:
        put = writer(names, sam.endpoint)
        put(PK="USER#u1", SK="POST#2026#p1", postId="p1", userId="u1", title="Gradual", status="draft")
        put(PK=f"USER#{user}", SK="LIKE#POST#p1", userId=user, postId="p1")
        post = eventually(
            lambda: read(names, sam.endpoint, "POST#p1", "METADATA"),
            lambda item: number(item, "likeCount") == likes,
        )
        assert post["title"] == {"S": "Gradual"}

    first, environment = runs()
    assert (first, environment["REDACT"]) == ("1", "none")
    (mapping,) = functions.list_event_source_mappings(FunctionName=alias)["EventSourceMappings"]
    assert mapping["FunctionArn"] == alias
    projections(sam, "apply", "social", "--stack", "gradual", "--yes")
    like("u2", 1)

    sam.deploy("gradual", template, BatchingWindowSeconds="0", AuditSchedule="off", Redact="keys")
    second, environment = runs()
    assert (second, environment["REDACT"]) == ("2", "keys")
    like("u3", 2)

    said = json.loads(projections(sam, "status", "--stack", "gradual", "--json"))
    assert {one["subject"]: one["says"] for one in said["findings"]}["stream"].startswith("Enabled")
