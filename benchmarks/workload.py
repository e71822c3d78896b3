"""The records and rules that all measurements share: likes of posts."""

from __future__ import annotations

import copy
from typing import Any

from projections.language.loader import loads
from projections.language.program import Program

__all__ = [
    "COPIES",
    "EIGHT_COUNTERS",
    "EIGHT_OF_ONE",
    "LIKES",
    "TABLE",
    "edited",
    "like",
    "likes",
    "program",
    "removed",
]

TABLE = "main"

LIKES = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#POST#{postId}"}}
projections:
  engagement:
    from: Like
    aggregate: {into: Post, set: {likeCount: count}}
"""

EIGHT_COUNTERS = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#POST#{postId}"}}
""" + "\n".join(
    [
        *(f'  Counter{number}: {{key: {{PK: "COUNTER{number}#{{c{number}}}", SK: S}}}}' for number in range(8)),
        "projections:",
        *(
            f"  rule{number}: {{from: Like, aggregate: {{into: Counter{number}, set: {{total{number}: count}}}}}}"
            for number in range(8)
        ),
    ]
)

EIGHT_OF_ONE = LIKES + "".join(
    f"  rule{number}: {{from: Like, aggregate: {{into: Post, set: {{total{number}: count}}}}}}\n" for number in range(7)
)

COPIES = """
table: {key: [PK, SK]}
entities:
  Like:  {key: {PK: "USER#{userId}", SK: "LIKE#POST#{postId}"}}
  Liked: {key: {PK: "LIKED#{postId}", SK: "BY#{userId}"}}
projections:
  likers: {from: Like, copy: {into: Liked, attributes: [likedAt]}}
"""

_ARN = f"arn:aws:dynamodb:us-east-1:000000000000:table/{TABLE}/stream/2026-01-01T00:00:00.000"


def program(rules: str = LIKES, *, lanes: bool = False) -> Program:
    """The rules; with `lanes`, all of them have `ledger: lanes`."""
    return Program.from_document(loads(rules.replace("{into:", "{ledger: lanes, into:") if lanes else rules).document())


def like(number: int, *, user: int, post: int, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """The record of an inserted like, in Lambda's format."""
    keys = {"PK": {"S": f"USER#{user}"}, "SK": {"S": f"LIKE#POST#{post}"}}
    return {
        "eventID": str(number),
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1767225600,
            "Keys": keys,
            "NewImage": {
                **keys,
                "likedAt": {"S": "2026-01-01T00:00:00Z"},
                "userId": {"S": str(user)},
                **(extra or {}),
            },
            "SequenceNumber": str(100000000000000000000 + number),
            "SizeBytes": 120,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": _ARN,
    }


def likes(count: int, posts: int, *, first: int = 0) -> list[dict[str, Any]]:
    """Likes by as many users, spread over posts in turn."""
    return [like(first + number, user=first + number, post=number % posts) for number in range(count)]


def edited(record: dict[str, Any]) -> dict[str, Any]:
    """A later record of the same item, which only changes what no rule reads."""
    later = _later(record, 1_000_000, "MODIFY")
    change = later["dynamodb"]
    change["OldImage"] = copy.deepcopy(change["NewImage"])
    change["NewImage"]["note"] = {"S": "edited"}
    return later


def removed(record: dict[str, Any]) -> dict[str, Any]:
    """A later record of the same item, which is gone."""
    later = _later(record, 2_000_000, "REMOVE")
    change = later["dynamodb"]
    change["OldImage"] = change.pop("NewImage")
    return later


def _later(record: dict[str, Any], by: int, name: str) -> dict[str, Any]:
    later = copy.deepcopy(record)
    later["eventName"] = name
    later["eventID"] = f"{record['eventID']}-{name}"
    later["dynamodb"]["SequenceNumber"] = str(int(record["dynamodb"]["SequenceNumber"]) + by)
    return later
