"""What `sam deploy` made is enough for commands: they need no rule file, and see what feeds the function."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sam_cli import AWS, Sam
from test_deploy import client, eventually, outputs, writer


def test_commands_use_the_rules_in_the_built_package(sam: Sam, built: Path, tmp_path: Path) -> None:
    sam.deploy("known", BatchingWindowSeconds="0")
    names = outputs("known", sam.endpoint)

    def projections(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "projections", *arguments, "--stack", "known"]
        environment = {**AWS, "AWS_ENDPOINT_URL": sam.endpoint, "PATH": "/usr/bin"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=120, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def status() -> dict[str, Any]:
        code, out, err = projections("status", "--json")
        assert (code in (0, 1), err) == (True, "")
        return dict(json.loads(out))

    put = writer(names, sam.endpoint)
    put(PK="USER#u1", SK="POST#2026#p1", postId="p1", userId="u1", title="Known", status="draft")
    said = eventually(status, lambda found: found["epoch"] == 1)
    rules = json.loads((built / "rules.json").read_text())["projections"]
    assert said["rules"].keys() == rules.keys()
    found = {one["subject"]: one for one in said["findings"]}
    assert found["stream"]["says"].startswith("Enabled, last result: ")
    assert found["audit"]["says"] == "has not run yet (rate(1 hour))"
    assert said["attention"] is False
    code, out, err = projections("verify", "--patience", "0")
    assert code in (0, 1), err
    assert "Items read" in out
    (mapping,) = client(sam.endpoint, "lambda").list_event_source_mappings(FunctionName=names["StreamFunctionName"])[
        "EventSourceMappings"
    ]
    client(sam.endpoint, "lambda").update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    code, out, err = projections("status")
    assert (code, err) == (1, "")
    assert f"Run `aws lambda update-event-source-mapping --uuid {mapping['UUID']} --enabled`." in out
