"""Reads a deployed stack: its outputs and parameters, and a function's package and event source mappings from Lambda."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from projections.aws.clients import reason_of, session
from projections.errors import Misconfigured, Transient
from projections.language.files import at_most


class Stack(NamedTuple):
    """Outputs and parameters by their keys. `created` is the time of the first deployment."""

    name: str
    outputs: Mapping[str, str]
    parameters: Mapping[str, str]
    created: datetime


def describe_stack(cloudformation: Any, name: str) -> Stack:
    """Return a stack. Raises Misconfigured if it does not exist or cannot be read."""
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except (ClientError, BotoCoreError) as error:
        if "does not exist" in str(error):
            raise Misconfigured(f"stack {name}: there is no such stack. Check name, account and --region") from error
        raise Misconfigured(f"stack {name}: {reason_of(error)}") from error
    return Stack(
        name,
        {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])},
        {parameter["ParameterKey"]: parameter.get("ParameterValue", "") for parameter in stack.get("Parameters", [])},
        stack["CreationTime"],
    )


def deployed_template(cloudformation: Any, name: str) -> str:
    """Return the template of a stack as it was sent. Raises Misconfigured if it cannot be read."""
    try:
        body = cloudformation.get_template(StackName=name, TemplateStage="Original")["TemplateBody"]
    except (ClientError, BotoCoreError) as error:
        raise Misconfigured(f"the template of stack {name} could not be read: {reason_of(error)}") from error
    return body if isinstance(body, str) else json.dumps(body)


_ROOT = "/var/task"
"""The directory into which Lambda unpacks the package."""

_LARGEST_PACKAGE, _LARGEST_FILE = 250 * 2**20, 16 * 2**20
"""Bytes: Lambda's limit of a package, and a limit of compiled rules, which are read into memory."""


class Maintainer(NamedTuple):
    """A function that maintains derived values: its stack, empty if not known, and its ledger table."""

    function: str
    stack: str
    ledger: str


def packaged_file(aws_lambda: Any, function: str, variable: str, default: str) -> tuple[str, bytes]:
    """Return the file that one of the function's environment variables names, as its path in the package and its bytes.

    `default` is the path if the variable is not set. The function runs this package, so it cannot be outdated like a local
    copy. Raises Misconfigured if it cannot be read.
    """
    try:
        answer = aws_lambda.get_function(FunctionName=function)
    except (ClientError, BotoCoreError) as error:
        raise Misconfigured(f"function {function}: {error}") from error
    variables = answer["Configuration"].get("Environment", {}).get("Variables", {})
    path = PurePosixPath(_ROOT, variables.get(variable) or default)
    location = answer["Code"].get("Location")
    if not location:
        raise Misconfigured(f"function {function}: it has no package (.zip) that can be read")
    try:
        with (
            zipfile.ZipFile(io.BytesIO(_download(location))) as package,
            package.open(str(path.relative_to(_ROOT))) as file,
        ):
            content = at_most(file, _LARGEST_FILE)
    except KeyError:
        raise Misconfigured(
            f"function {function}: its package has no {path.relative_to(_ROOT)}. If `sam build` failed or was omitted, "
            "SAM uploads the project's directory: run `sam build` and `sam deploy`"
        ) from None
    except ValueError:
        raise Misconfigured(f"function {function}: {variable} is {path}, which is not in its package") from None
    except BotoCoreError as error:  # its text has the URL with the signature
        host, kind = urlsplit(location).netloc, type(error).__name__
        raise Misconfigured(f"function {function}: its package could not be read: {kind} at {host}") from None
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:  # RuntimeError: it is encrypted
        raise Misconfigured(f"function {function}: its package could not be read: {error}") from error
    if content is None:
        raise Misconfigured(
            f"function {function}: {path} in its package has more than {_LARGEST_FILE // 2**20} MiB after decompression"
        )
    return str(path), content


def _download(url: str) -> bytes:
    """Download a signed URL, with the proxy and the certificates of AWS's own clients."""
    bundle = session().get_config_variable("ca_bundle")
    http = URLLib3Session(verify=bundle or True, proxies=get_environ_proxies(url), timeout=30)
    answer = http.send(AWSRequest(method="GET", url=url, stream_output=True).prepare())
    if answer.status_code != 200:
        raise OSError(f"the answer is HTTP {answer.status_code}")
    try:
        content = at_most(answer.raw, _LARGEST_PACKAGE)
    except HTTPError as error:
        raise OSError(f"the connection was interrupted: {type(error).__name__}") from None
    if content is None:
        raise OSError(f"it has more than {_LARGEST_PACKAGE // 2**20} MiB")
    return content


def event_source_mappings(aws_lambda: Any, function: str, streams: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return the mappings that feed a function, or an alias or version of it, from any stream.

    The mappings of aliases and versions are found by their streams, because Lambda does not list them under the function's
    name. Raises Transient if Lambda does not answer.
    """
    mappings: dict[str, Mapping[str, Any]] = {}
    try:
        for question in ({"FunctionName": function}, *({"EventSourceArn": stream} for stream in streams)):
            for mapping in _pages(aws_lambda, question):
                if _name(mapping["FunctionArn"]) == _name(function):
                    mappings[mapping["UUID"]] = mapping
    except (ClientError, BotoCoreError) as error:
        raise Transient(f"Lambda: {error}") from error
    return list(mappings.values())


def other_maintainers(aws_lambda: Any, function: str, ledger: str, streams: Iterable[str]) -> list[Maintainer]:
    """Return the other functions that read these streams and have another ledger table, by name.

    Functions with disabled mappings are omitted, and those that have no ledger. Raises Transient if Lambda does not answer.
    """
    maintainers = []
    try:
        feeds = [feed for arn in streams for feed in _pages(aws_lambda, {"EventSourceArn": arn})]
        names = {_name(feed["FunctionArn"]) for feed in feeds if feed.get("State") not in ("Disabled", "Deleting")}
        for name in sorted(names - {_name(function)}):
            configuration = aws_lambda.get_function(FunctionName=name)["Configuration"]
            variables = configuration.get("Environment", {}).get("Variables", {})
            theirs = variables.get("LEDGER_TABLE_NAME", ledger)
            if theirs != ledger:
                maintainers.append(Maintainer(name, variables.get("POWERTOOLS_SERVICE_NAME", ""), theirs))
    except (ClientError, BotoCoreError) as error:
        raise Transient(f"Lambda: {error}") from error
    return maintainers


def _pages(aws_lambda: Any, question: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    for page in aws_lambda.get_paginator("list_event_source_mappings").paginate(**question):
        yield from page["EventSourceMappings"]


def _name(function: str) -> str:
    """Return a function's name from its name or ARN, with or without an alias or version."""
    return function.split(":")[6] if function.startswith("arn:") else function.split(":")[0]
