"""The stream of one table: reads its shards from the endpoint, and forms batches as the event source mapping does."""

from __future__ import annotations

from collections.abc import Callable

from projections.aws.streams import StreamReader
from projections.local.event_source import Batch, EventSourceMapping, Record, Shard, Stream

__all__ = ["Followed"]

WAITING = 2000
"""Records of a shard that may wait for delivery. More are read when these are processed."""

FEW = 25
"""While no more records wait, they are delivered one by one, so that the cost of each can be reported."""

RETRIES = 4
"""Of a batch on which the function raises. A batch that it reports as failed is retried without limit."""


class Followed:
    """Reads the stream (`discover`, `poll`) and returns batches (`next_batch`, `finish`).

    With `latest`, records that are in the stream at first are skipped; shards that appear later, such as children of a
    split, are read from their beginning. `batch_size` None means as few records as possible, see FEW.
    """

    def __init__(
        self,
        reader: StreamReader,
        *,
        latest: bool,
        batch_size: int | None,
        on_failure: Callable[[tuple[Record, ...], BaseException | None], None],
    ) -> None:
        self.reader = reader
        self.on = True
        self._latest = latest
        self._size = batch_size
        self._stream = Stream.followed(reader.arn)
        self._mapping = EventSourceMapping(self._stream, batch_size=batch_size or 1, on_failure=on_failure)
        self._known: set[str] = set()
        self._open: dict[str, Shard] = {}
        self._done: dict[str, int] = {}

    def discover(self) -> None:
        """Look for new shards. Raises Transient, StreamGone, Misconfigured."""
        first = not self._known
        self.on, found = self.reader.shards()
        for one in found:
            if one.id in self._known:
                continue
            skipped = first and self._latest
            if not (skipped and one.closed):
                self.reader.begin(one.id, latest=skipped)
                shard = Shard(one.id, parent=one.parent)
                self._stream.adopt(shard)
                self._open[one.id] = shard
            self._known.add(one.id)

    @property
    def ended(self) -> bool:
        """Whether the stream is off and all its records were delivered."""
        return not self.on and not self._open and not self._mapping.runnable()

    def poll(self) -> bool:
        """Read more records of every open shard. Return whether there were any. Raises as `discover` does."""
        found = ended = False
        for shard in list(self._open.values()):
            if len(shard.records) - self._mapping.checkpoint(shard.id) >= WAITING:
                continue
            stretch = self.reader.read(shard.id)
            shard.records.extend(stretch.records)
            found = found or bool(stretch.records)
            if stretch.ended:
                shard.closed = ended = True
                del self._open[shard.id]
        if ended:
            self.discover()  # its children, if it was split
        return found

    @property
    def waiting(self) -> int:
        """The number of records that were read and are not processed."""
        return sum(len(shard.records) - self._mapping.checkpoint(shard.id) for shard in self._stream.shards.values())

    def next_batch(self) -> Batch | None:
        """Return the next batch, to be ended with `finish`, or None."""
        shards = self._mapping.runnable()
        if not shards:
            return None
        if self._size is None:
            self._mapping.batch_size = 1 if self.waiting <= FEW else 100
        return self._mapping.next_batch(shards[0])

    def finish(self, batch: Batch, response: object = None, error: BaseException | None = None) -> None:
        """End a delivery with its response or error."""
        self._mapping.max_retries = RETRIES if error is not None else -1
        self._mapping.finish(batch, response, error)
        self._release(batch.shard)

    def _release(self, shard_id: str) -> None:
        """Free the memory of processed records: a session may last for days. Their number in the list stays."""
        records = self._stream.shards[shard_id].records
        done = self._mapping.checkpoint(shard_id)
        for place in range(self._done.get(shard_id, 0), done):
            records[place] = _NOTHING
        self._done[shard_id] = done


_NOTHING: dict[str, object] = {}
