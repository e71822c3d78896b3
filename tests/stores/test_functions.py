"""What Lambda says of functions and their mappings, in responses of the shapes that botocore's model has.

MiniStack answers the same calls in tests/tools/test_stack.py and test_status_command.py; here is what it does not: pages of
mappings, mappings of aliases, invalid packages, denied permissions.
"""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

from projections.aws import deployed_stack
from projections.aws.deployed_stack import Maintainer, event_source_mappings, other_maintainers, packaged_file
from projections.errors import Misconfigured, Transient

FUNCTION = "arn:aws:lambda:us-east-1:111122223333:function:shop-stream"
STREAM = "arn:aws:dynamodb:us-east-1:111122223333:table/app/stream/2026-02-01T00:00:00.000"


@pytest.fixture
def stubbed() -> Iterator[tuple[Any, Stubber]]:
    """A client of Lambda that checks parameters and responses against the model, and sends nothing."""
    made = botocore.session.get_session().create_client(
        "lambda", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    with Stubber(made) as stubber:
        yield made, stubber
        stubber.assert_no_pending_responses()


def mapping(uuid: str, function: str = FUNCTION, **more: Any) -> dict[str, Any]:
    return {"UUID": f"{uuid:-<36}", "FunctionArn": function, "EventSourceArn": STREAM, "State": "Enabled", **more}


def test_mappings_are_read_page_by_page(stubbed: tuple[Any, Stubber]) -> None:
    client, stubber = stubbed
    first = {
        "EventSourceMappings": [mapping("1", LastProcessingResult="PROBLEM: Function call failed")],
        "NextMarker": "x",
    }
    stubber.add_response("list_event_source_mappings", first, {"FunctionName": "shop-stream"})
    stubber.add_response(
        "list_event_source_mappings",
        {"EventSourceMappings": [mapping("2", StateTransitionReason="User action")]},
        {"FunctionName": "shop-stream", "Marker": "x"},
    )
    found = event_source_mappings(client, "shop-stream", [])
    assert [one["UUID"][0] for one in found] == ["1", "2"]
    assert found[0]["LastProcessingResult"] == "PROBLEM: Function call failed"


def test_mappings_of_aliases_are_found_by_the_stream_and_those_of_other_functions_are_not_ours(
    stubbed: tuple[Any, Stubber],
) -> None:
    client, stubber = stubbed
    stubber.add_response("list_event_source_mappings", {"EventSourceMappings": []}, {"FunctionName": "shop-stream"})
    others = [mapping("other", FUNCTION.replace("shop", "search")), mapping("longer", f"{FUNCTION}2")]
    answer = {"EventSourceMappings": [*others, mapping("ours", f"{FUNCTION}:live")]}
    stubber.add_response("list_event_source_mappings", answer, {"EventSourceArn": STREAM})
    (found,) = event_source_mappings(client, "shop-stream", [STREAM])
    assert found["UUID"].startswith("ours")


def test_other_maintainers_read_the_stream_and_have_another_ledger(stubbed: tuple[Any, Stubber]) -> None:
    client, stubber = stubbed
    names = ("stream", "search", "same", "twin", "stopped")
    mappings = [mapping(name, FUNCTION.replace("stream", name)) for name in names]
    mappings[-1]["State"] = "Disabled"
    stubber.add_response("list_event_source_mappings", {"EventSourceMappings": mappings}, {"EventSourceArn": STREAM})
    twin = {"LEDGER_TABLE_NAME": "theirs", "POWERTOOLS_SERVICE_NAME": "shop2"}
    variables = {"same": {"LEDGER_TABLE_NAME": "ours"}, "search": {}, "twin": twin}
    for name, found in variables.items():
        configuration = {"FunctionName": f"shop-{name}", "Environment": {"Variables": found}}
        stubber.add_response("get_function", {"Configuration": configuration}, {"FunctionName": f"shop-{name}"})
    found = other_maintainers(client, "shop-stream", "ours", [STREAM])
    assert found == [Maintainer("shop-twin", "shop2", "theirs")]


def test_a_denied_permission_is_reported_by_its_name(stubbed: tuple[Any, Stubber]) -> None:
    client, stubber = stubbed
    says = "User: me is not authorized to perform: lambda:ListEventSourceMappings on resource: *"
    stubber.add_client_error("list_event_source_mappings", "AccessDeniedException", says, 403)
    with pytest.raises(Transient, match=r"Lambda: .*lambda:ListEventSourceMappings"):
        event_source_mappings(client, "shop-stream", [])
    stubber.add_client_error(
        "get_function", "AccessDeniedException", says.replace("ListEventSourceMappings", "GetFunction")
    )
    with pytest.raises(Misconfigured, match=r"function shop-stream: .*lambda:GetFunction"):
        packaged_file(client, "shop-stream", "RULES_FILE", "rules.json")


# --- packages ---


@pytest.fixture
def served() -> Iterator[dict[str, Any]]:
    """A URL that answers with `status` and `body`."""
    told: dict[str, Any] = {"status": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(told["status"])
            self.end_headers()
            self.wfile.write(told["body"])

        def log_message(self, *_: Any) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield told | {"url": f"http://127.0.0.1:{server.server_port}/code?X-Amz-Signature=abc", "told": told}
    server.shutdown()
    thread.join()
    server.server_close()


def zipped(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as package:
        for name, text in files.items():
            package.writestr(name.replace("_", "."), text)
    return content.getvalue()


def answered(stubber: Stubber, code: dict[str, Any], **variables: str) -> None:
    configuration = {"FunctionName": "shop-stream", "Environment": {"Variables": variables}}
    stubber.add_response(
        "get_function", {"Configuration": configuration, "Code": code}, {"FunctionName": "shop-stream"}
    )


def test_a_package_is_read_up_to_a_limit(
    stubbed: tuple[Any, Stubber], served: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small package may decompress to a thousand times its size, and say that it does not."""
    client, stubber = stubbed
    bomb = zipped(rules_json=" " * 17 * 2**20)
    assert len(bomb) < 20_000
    size = (17 * 2**20).to_bytes(4, "little")
    for body in (bomb, bomb.replace(size, (10).to_bytes(4, "little"))):
        served["told"]["body"] = body
        answered(stubber, {"RepositoryType": "S3", "Location": served["url"]})
        with pytest.raises(Misconfigured, match=r"more than 16 MiB after decompression|could not be read: Bad CRC-32"):
            packaged_file(client, "shop-stream", "RULES_FILE", "rules.json")
    monkeypatch.setattr(deployed_stack, "_LARGEST_PACKAGE", 10_000)
    answered(stubber, {"RepositoryType": "S3", "Location": served["url"]})
    with pytest.raises(Misconfigured, match="its package could not be read: it has more than 0 MiB"):
        packaged_file(client, "shop-stream", "RULES_FILE", "rules.json")


def test_an_address_that_does_not_answer_and_an_image_are_reported(stubbed: tuple[Any, Stubber]) -> None:
    client, stubber = stubbed
    answered(stubber, {"RepositoryType": "S3", "Location": "http://127.0.0.1:9/code?X-Amz-Signature=abc"})
    with pytest.raises(Misconfigured, match="its package could not be read: ") as error:
        packaged_file(client, "shop-stream", "RULES_FILE", "rules.json")
    assert "Signature" not in str(error.value)
    answered(stubber, {"RepositoryType": "ECR", "ImageUri": "111122223333.dkr.ecr.us-east-1.amazonaws.com/x:1"})
    with pytest.raises(Misconfigured, match=r"it has no package \(.zip\) that can be read"):
        packaged_file(client, "shop-stream", "RULES_FILE", "rules.json")
