"""Reads a deployed CloudFormation stack: its outputs and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.aws.clients import reason_of
from projections.errors import Misconfigured

__all__ = ["Stack", "described_stack"]


@dataclass(frozen=True, slots=True)
class Stack:
    """Outputs and parameters by their keys. `created` is the time of the first deployment."""

    name: str
    outputs: Mapping[str, str]
    parameters: Mapping[str, str]
    created: datetime


def described_stack(cloudformation: Any, name: str) -> Stack:
    """Return a stack. Raises Misconfigured if it does not exist or cannot be read."""
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except (ClientError, BotoCoreError) as error:
        if "does not exist" in str(error):
            raise Misconfigured(f"stack {name}: there is no such stack. Check name, account and --region") from error
        raise Misconfigured(f"stack {name}: {reason_of(error)}") from error
    return Stack(
        name,
        {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])},
        {one["ParameterKey"]: one.get("ParameterValue", "") for one in stack.get("Parameters", [])},
        stack["CreationTime"],
    )
