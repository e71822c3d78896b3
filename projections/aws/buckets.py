"""S3 buckets in which Lambda leaves what it gave up.

What was redriven is marked: by an object `redriven/<key>`, of which nothing but the key is ever read. So nothing is deleted:
that would take a permission nobody likes to give, and the images in an object may be the last trace of what happened. The
bucket's lifecycle rule deletes both. To look at tags would cost a request per object, at marks one per thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient

__all__ = ["MARKS", "Bucket"]

MARKS = "redriven/"
"""What the keys of marks begin with; the key of what is marked follows."""

_MISCONFIGURED = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "KMS.AccessDeniedException",
        "NoSuchBucket",
        "PermanentRedirect",
        "SignatureDoesNotMatch",
    }
)
_TRANSIENT = frozenset({"RequestTimeout", "SlowDown", "ServiceUnavailable", "InternalError", "503"})


class Bucket:
    """One bucket by its name. Raises `Transient`, `Misconfigured` or `InvalidRequest`."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def pending(self, prefix: str = "") -> Iterator[str]:
        """The keys under a prefix that are not marked, in S3's order; any number of them, in little memory."""
        marks = self._keys(MARKS + prefix)
        mark = next(marks, None)
        for key in self._keys(prefix):
            if key.startswith(MARKS):
                continue
            wanted = (MARKS + key).encode()
            while mark is not None and mark.encode() < wanted:  # both lists are in the order of their UTF-8
                mark = next(marks, None)
            if mark is None or mark.encode() != wanted:
                yield key

    def read(self, key: str) -> bytes:
        """The content of an object."""
        content: bytes = self._asked(lambda: self._client.get_object(Bucket=self._name, Key=key)["Body"].read())
        return content

    def mark(self, key: str, note: str) -> None:
        """Marks an object as redriven; the note is for people."""
        self._asked(
            lambda: self._client.put_object(
                Bucket=self._name, Key=MARKS + key, Body=note.encode(), ContentType="application/json"
            )
        )

    def _keys(self, prefix: str) -> Iterator[str]:
        more: dict[str, Any] = {}
        while True:
            page = self._asked(partial(self._client.list_objects_v2, Bucket=self._name, Prefix=prefix, **more))
            yield from (one["Key"] for one in page.get("Contents", []))
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (ClientError, BotoCoreError) as error:
            raise self._translated(error) from error

    def _translated(self, error: ClientError | BotoCoreError) -> StoreError:
        place = f"s3://{self._name}"
        if not isinstance(error, ClientError):
            return Transient(f"{place} was not reached: {error}")
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _MISCONFIGURED or status == 403:
            return Misconfigured(f"{place}: {error}. Check the bucket's name and that you may read and write in it.")
        if code in _TRANSIENT or status >= 500:
            return Transient(f"{place}: {error}")
        return InvalidRequest(f"{place}: {error}")
