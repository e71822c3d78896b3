"""What a CloudFormation stack of ours is made of: the outputs of `template.yaml`."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import Misconfigured

__all__ = ["outputs"]


def outputs(cloudformation: Any, name: str) -> dict[str, str]:
    """The outputs of a stack by their keys. Raises Misconfigured if there is no such stack or it cannot be looked at."""
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except (ClientError, BotoCoreError) as error:
        raise Misconfigured(f"stack {name}: {error}") from error
    return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
