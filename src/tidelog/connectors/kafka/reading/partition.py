"""One partition while its job reads it: what the consumer's thread has fetched, and the job takes.

Invariants: the thread alone appends, the event loop alone takes; a position belongs to the records
before it; an error comes after the records that were fetched before it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import Any, Final, NamedTuple

from tidelog.connectors.kafka.reading.offsets import TopicPartition
from tidelog.connectors.kafka.reading.records import KafkaRecord
from tidelog.errors import TidelogError
from tidelog.runtime.source import SplitReader

_BATCH_RECORDS: Final = 4096


class _Fetched(NamedTuple):
    records: list[KafkaRecord]
    position: Any
    size_bytes: int
    failure: TidelogError | None = None


class PartitionReader(SplitReader):
    """Gives the job what the thread has fetched of one partition, up to an end if there is one.

    `taken` is set when it took something; `leave` is called when the job is done with it.
    """

    def __init__(
        self,
        partition: TopicPartition,
        position: Any,
        end: int | None,
        taken: Event,
        leave: Callable[["PartitionReader"], None],
    ) -> None:
        self.partition = partition
        self.position = position
        self.end = end
        self._taken = taken
        self._leave = leave
        self._fetched: deque[_Fetched] = deque()
        self._listener: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._records_in = self._records_out = 0
        self._bytes_in = self._bytes_out = 0
        self.fetched_to = position
        """The position after what the thread has fetched; its own."""
        self.paused = False
        """The thread fetches nothing of the partition; its own."""
        self.at_newest = False
        """The thread has fetched all that there is."""
        self._note_end()

    @property
    def behind(self) -> bool:  # type: ignore[override]  # computed here
        return not self.at_newest

    @property
    def waiting(self) -> tuple[int, int]:
        """Records that the job has not taken, and their bytes."""
        return self._records_in - self._records_out, self._bytes_in - self._bytes_out

    def read(self) -> list[Any] | None:
        """Raises what went wrong with the partition."""
        if self.at_end:
            return None
        records: list[KafkaRecord] = []
        while self._fetched and len(records) < _BATCH_RECORDS:
            fetched = self._fetched[0]
            if fetched.failure is not None:
                if records:
                    break
                raise fetched.failure
            self._fetched.popleft()
            records += fetched.records
            self.position = fetched.position
            self._records_out += len(fetched.records)
            self._bytes_out += fetched.size_bytes
        self._taken.set()
        self._note_end()
        return None if self.at_end and not records else records

    def notify(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def close(self) -> None:
        self._leave(self)

    def put(self, records: list[KafkaRecord], position: int, size_bytes: int) -> None:
        """In the thread: records, and where the partition goes on after them."""
        self.fetched_to = position
        self._records_in += len(records)
        self._bytes_in += size_bytes
        self._hand_over(_Fetched(records, position, size_bytes))

    def fail(self, failure: TidelogError) -> None:
        """In the thread: the partition cannot be read on."""
        self._hand_over(_Fetched([], None, 0, failure))

    def _hand_over(self, fetched: _Fetched) -> None:
        first = not self._fetched
        self._fetched.append(fetched)
        if first and self._listener is not None:
            with suppress(RuntimeError):  # the loop was closed in the meantime
                self._loop.call_soon_threadsafe(self._listener)

    def _note_end(self) -> None:
        if self.end is not None:
            self.at_end = isinstance(self.position, int) and self.position >= self.end
            # A partition without a message has no position until the job asks for one.
            self.at_end = self.at_end or self.end == 0
