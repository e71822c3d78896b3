"""Translates the errors of DynamoDB into those of `projections.errors`. No other module does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from projections.errors import (
    ConditionFailed,
    InvalidRequest,
    Misconfigured,
    Reason,
    ReasonKind,
    StoreError,
    TransactionCancelled,
    Transient,
)
from projections.stores.wire import from_boto

_TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_INVALID = frozenset(
    {
        "DuplicateItem",
        "IdempotentParameterMismatchException",
        "ItemCollectionSizeLimitExceededException",
        "RequestEntityTooLarge",
        "SerializationException",
        "UnknownOperationException",
        "ValidationException",
    }
)
_WAYS_OUT = {
    "AccessDeniedException": "Allow dynamodb:{operation} on it to the role of this process.",
    "ExpiredTokenException": "Renew the credentials of this process.",
    "InvalidSignatureException": "Check the credentials and the clock of this process.",
    "ResourceNotFoundException": "Check the name of the table, the account and the Region.",
    "UnrecognizedClientException": "Check the credentials of this process and the Region.",
}
_TABLE_DIFFERS = (
    "The table does not have the specified index",
    "The provided key element does not match the schema",
    "The number of conditions on the keys is invalid",
    "Query condition missed key schema element",
)
"""How validation messages begin that report a table which differs from its schema here. Every request fails with them.

Only the beginning of a message is DynamoDB's own: what follows may have names and values of the application.
"""

_BACKFILLING = "Cannot read from backfilling global secondary index"

_PERMISSIONS = {"BatchExecuteStatement": "PartiQLUpdate"}
"""The permission that an operation needs, if it has another name."""

_OF_STATEMENTS = {
    "AccessDenied": "AccessDeniedException",
    "ItemCollectionSizeLimitExceeded": "ItemCollectionSizeLimitExceededException",
    "ProvisionedThroughputExceeded": "ProvisionedThroughputExceededException",
    "ResourceNotFound": "ResourceNotFoundException",
    "ThrottlingError": "ThrottlingException",
    "TransactionConflict": "TransactionConflictException",
    "ValidationError": "ValidationException",
}

_REASONS: Mapping[str, ReasonKind] = {
    "ConditionalCheckFailed": "condition",
    "DuplicateItem": "condition",
    "TransactionConflict": "conflict",
    "ProvisionedThroughputExceeded": "throttled",
    "ThrottlingError": "throttled",
}

_THROTTLING = frozenset(
    {
        *(code for code, kind in _REASONS.items() if kind == "throttled"),
        *("ProvisionedThroughputExceededException", "RequestLimitExceeded", "Throttling", "ThrottlingException"),
    }
)


def throttling(response: Mapping[str, Any], tables: str) -> list[str]:
    """Return why a request was throttled, each reason once; nothing if it was not.

    Exceptions have the limit and the ARN of the table or index, in two spellings. Answers to statements and cancelled
    transactions only have a code.
    """
    code = response.get("Error", {}).get("Code")
    if code in _THROTTLING:
        reasons = response.get("ThrottlingReasons") or response.get("throttlingReasons") or []
        named = [  # such as `table/app/index/GSI1`
            f"{reason['reason']} of {str(reason.get('resource') or tables).rpartition(':')[2]}"
            for reason in reasons
            if reason.get("reason")
        ]
        return list(dict.fromkeys(named)) or [f"{code} of {tables}"]
    codes = dict.fromkeys(reason.get("Code") for reason in response.get("CancellationReasons") or [])
    return [f"{each} of {tables}" for each in codes if each in _THROTTLING]


def translate(error: ClientError, operation: str, tables: str) -> StoreError:
    """Return the error that an error of DynamoDB means; Misconfigured for unknown ones, which an operator has to look at."""
    response: Mapping[str, Any] = error.response
    code = str(response.get("Error", {}).get("Code", ""))
    message = str(response.get("Error", {}).get("Message", "")).rstrip(". ")
    if code == "ConditionalCheckFailedException":
        item = response.get("Item")
        return ConditionFailed(from_boto(item) if item else None)
    if code == "TransactionCanceledException" and response.get("CancellationReasons"):
        return TransactionCancelled([_reason(reason) for reason in response["CancellationReasons"]])
    if reasons := throttling(response, tables):
        message = f"{message} ({'; '.join(reasons)})".lstrip()
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _error(code, message, operation, tables, status)


def _error(code: str, message: str, operation: str, tables: str, status: int = 400) -> StoreError:
    text = f"{operation} on {tables}: {code}: {message}"
    if code == "ValidationException":
        if message.startswith(_TABLE_DIFFERS):
            return Misconfigured(f"{text}. Compare the keys and indexes of the table with those in the rules.")
        if message.startswith(_BACKFILLING):
            return Transient(text)
    if code in _INVALID:
        return InvalidRequest(text)
    if code in _TRANSIENT or status >= 500:
        return Transient(text)
    way_out = _WAYS_OUT.get(code, "").format(operation=_PERMISSIONS.get(operation, operation))
    return Misconfigured(f"{text}. {way_out}".rstrip())


def of_statement(error: Mapping[str, Any], tables: str) -> StoreError:
    """Return the error of one statement in a batch. Its codes are abbreviations of those of exceptions."""
    code = str(error.get("Code", ""))
    if code == "ConditionalCheckFailed":
        return ConditionFailed()
    message = str(error.get("Message", "")).rstrip(". ")
    return _error(_OF_STATEMENTS.get(code, code), message, "BatchExecuteStatement", tables)


def _reason(reason: Mapping[str, Any]) -> Reason | None:
    code = reason.get("Code") or "None"
    if code == "None":
        return None
    item = reason.get("Item")
    return Reason(_REASONS.get(code, "invalid"), from_boto(item) if item else None, str(reason.get("Message") or code))
