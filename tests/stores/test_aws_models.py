"""The models of services as botocore itself would load them, found in fewer places."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import DataNotFoundError
from botocore.loaders import Loader

from projections.aws import clients as aws
from projections.aws.clients import Models

KINDS = ("service-2", "endpoint-rule-set-1", "paginators-1", "waiters-2")


@pytest.mark.parametrize("service", ["dynamodb", "dynamodbstreams", "sqs", "lambda", "s3"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_as_botocore_loads_it(service: str, kind: str) -> None:
    botocores = Loader()
    ours = Models(botocores.search_paths)
    try:
        expected = botocores.load_service_model(service, kind)
    except DataNotFoundError:
        with pytest.raises(DataNotFoundError):
            ours.load_service_model(service, kind)
        return
    found = ours.load_service_model(service, kind)
    assert found == expected
    assert json.dumps(found) == json.dumps(expected)  # in the same order


@pytest.mark.parametrize(
    "host",
    [
        "dynamodb.us-east-1.amazonaws.com",
        "111122223333.ddb.us-east-1.amazonaws.com",
        "dynamodb.us-east-1.api.aws",
        "dynamodb.us-gov-west-1.amazonaws.com",
        "dynamodb.cn-north-1.amazonaws.com.cn",
        "dynamodb.cn-north-1.api.amazonwebservices.com.cn",
        "dynamodb.us-iso-east-1.c2s.ic.gov",
        "dynamodb.us-isob-east-1.sc2s.sgov.gov",
        "dynamodb.eu-isoe-west-1.cloud.adc-e.uk",
        "dynamodb.us-isof-south-1.csp.hci.ic.gov",
        "dynamodb.eusc-de-east-1.amazonaws.eu",
        "vpce-0a1b.dynamodb.cn-north-1.vpce.amazonaws.com.cn",
    ],
)
def test_an_endpoint_of_any_partition_is_awss_own(host: str) -> None:
    """Else a client would send test credentials to it, and `projections dev` would take it for an emulator."""
    assert not aws.is_emulated(f"https://{host}")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000",
        "http://127.0.0.1:4566",
        "https://localhost.localstack.cloud:4566",
        "https://notamazonaws.com",
        "https://amazonaws.com.example.org",
    ],
)
def test_any_other_endpoint_is_an_emulator(url: str) -> None:
    assert aws.is_emulated(url)
