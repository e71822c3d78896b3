"""S3 buckets with the batches that Lambda discarded.

A redriven object gets a mark: an object `redriven/<key>`, of which only the key is read. Nothing is deleted: that needs a
permission that few want to grant, and the images in an object may be the only evidence of what happened. The bucket's
lifecycle rule deletes both. Marks cost one request per thousand objects, tags would cost one per object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient
from projections.language.files import at_most

__all__ = ["MARKS", "Bucket"]

MARKS = "redriven/"
"""The prefix of the keys of marks. The key of the marked object follows."""

_LARGEST = 64 * 2**20
"""Bytes of an object. Lambda invokes a function with at most 6 MB."""

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
    """A bucket by its name. Raises Transient, Misconfigured or InvalidRequest."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def pending(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys under a prefix that are not marked, in S3's order. It needs little memory for any number of
        keys.
        """
        marks = self._keys(MARKS + prefix)
        mark = next(marks, None)
        for key in self._keys(prefix):
            if key.startswith(MARKS):
                continue
            wanted = (MARKS + key).encode()
            while mark is not None and mark.encode() < wanted:  # both lists are in UTF-8 order
                mark = next(marks, None)
            if mark is None or mark.encode() != wanted:
                yield key

    def read(self, key: str) -> bytes:
        """Return the content of an object. Raises InvalidRequest if it is larger than one that Lambda writes."""
        content: bytes | None = self._asked(
            lambda: at_most(self._client.get_object(Bucket=self._name, Key=key)["Body"], _LARGEST)
        )
        if content is None:
            raise InvalidRequest(f"it has more than {_LARGEST // 2**20} MiB, so Lambda did not write it")
        return content

    def mark(self, key: str, note: str) -> None:
        """Mark an object as redriven. The note is for people."""
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
            return Misconfigured(
                f"{place}: {error}. Check the bucket's name, and that you have permission to read and write objects."
            )
        if code in _TRANSIENT or status >= 500:
            return Transient(f"{place}: {error}")
        return InvalidRequest(f"{place}: {error}")
