"""Clients of AWS or of emulators."""

from __future__ import annotations

import gzip
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import botocore
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError, NoRegionError
from botocore.loaders import JSONFileLoader, Loader

from projections.errors import Misconfigured, MissingExtra

_LOCALSTACK = ("LOCALSTACK_HOST", "LOCALSTACK_HOSTNAME", "EDGE_PORT")
"""If one of these is set, localstack-client is used, which reads them itself."""

_USER_AGENT = f"dynamodb-projections Botocore/{botocore.__version__} Python/{platform.python_version()}"


def endpoint(service: str) -> str | None:
    """Return the endpoint of a service from AWS's environment variables, then from LocalStack's; None for AWS itself."""
    named = os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}") or os.environ.get("AWS_ENDPOINT_URL")
    if named:
        return named
    localstack = next((name for name in _LOCALSTACK if os.environ.get(name)), None)
    if localstack:
        try:
            from localstack_client.config import get_service_endpoint  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise MissingExtra(f"The environment variable {localstack}", "localstack-client", "localstack") from error

        url: str | None = get_service_endpoint(service)
        return url
    return None


def reason_of(error: BotoCoreError | ClientError) -> str:
    """Return why a request failed, and what to do about it."""
    if isinstance(error, NoCredentialsError):
        return "no AWS credentials. Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if isinstance(error, EndpointConnectionError):
        return f"{str(error).rstrip('.')}. Check --endpoint-url, AWS_ENDPOINT_URL, --region and the network"
    return str(error)


def is_emulated(url: str | None) -> bool:
    """Return whether an endpoint is not AWS, in any partition. None is AWS itself."""
    return url is not None and not (urlsplit(url).hostname or "").endswith(_suffixes())


@lru_cache(maxsize=1)
def _suffixes() -> tuple[str, ...]:
    """Return the suffixes of AWS's host names: `.amazonaws.com`, in China `.amazonaws.com.cn`, and those of other
    partitions.
    """
    partitions = session().get_component("data_loader").load_data("partitions")["partitions"]
    names = ("dnsSuffix", "dualStackDnsSuffix")
    return tuple({f".{partition['outputs'][name]}" for partition in partitions for name in names})


def client(
    service: str = "dynamodb",
    endpoint_url: str | None = None,
    *,
    region: str | None = None,
    max_pool_connections: int = 10,
) -> Any:
    """Return a low-level client. Without `endpoint_url` the environment decides. An emulator needs no credentials.

    `max_pool_connections` is the number of threads that can call at once without a wait.
    """
    url = endpoint_url or endpoint(service)
    if url is not None and not (url.startswith(("http://", "https://")) and urlsplit(url).hostname):
        raise Misconfigured(f"the endpoint {url} is not a URL. Write one such as http://localhost:8000")
    emulated = is_emulated(url)
    # user_agent: botocore would build its own twice for every request, a sixth of a request's CPU time.
    # parameter_validation: DynamoDB validates parameters anyway, and validating a transaction of 100 here takes 6 ms.
    # timeouts: later answers are unlikely, except of a busy emulator, and the engine needs time to report failures.
    config = Config(
        user_agent=_USER_AGENT,
        parameter_validation=False,
        retries={"mode": "standard", "total_max_attempts": 4},
        tcp_keepalive=True,
        connect_timeout=3,
        read_timeout=5 if service == "dynamodb" and not emulated else 30,
        max_pool_connections=max_pool_connections,
        account_id_endpoint_mode="disabled" if emulated else None,
    )
    options: dict[str, Any] = {"config": config, "endpoint_url": url}
    if region:
        options["region_name"] = region
    elif emulated and not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        options["region_name"] = "us-east-1"
    elif not os.environ.get("AWS_DEFAULT_REGION") and os.environ.get("AWS_REGION"):
        options["region_name"] = os.environ["AWS_REGION"]
    if emulated and not (os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_PROFILE")):
        options |= {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    try:
        made: Any = session().create_client(service, **options)
    except NoRegionError:
        raise Misconfigured("no AWS Region: pass --region NAME, or set AWS_REGION") from None
    return made


@lru_cache(maxsize=1)
def session() -> botocore.session.Session:
    """Return the session of this process's clients. boto3 would add resources and S3 transfers, a sixth of a cold start."""
    made = botocore.session.get_session()
    made.register_component("data_loader", Models(made.get_component("data_loader").search_paths))
    return made


_OPENERS: Mapping[str, Callable[[str, str], Any]] = {".json": open, ".json.gz": gzip.open}


class Models(Loader):
    """A loader that searches these paths. It lists the services that were requested; one without a model raises
    `botocore.exceptions.DataNotFoundError`.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(list(paths), _Files(), include_default_search_paths=False)
        self._services: set[str] = set()

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        self._services.add(service_name)
        return super().load_service_model(service_name, type_name, api_version)

    def list_available_services(self, type_name: str) -> list[str]:
        return sorted(self._services)


class _Files(JSONFileLoader):
    def load_file(self, file_path: str) -> Any:
        for extension, opener in _OPENERS.items():
            if os.path.isfile(file_path + extension):
                with opener(file_path + extension, "rb") as file:
                    return json.loads(file.read())
        return None
