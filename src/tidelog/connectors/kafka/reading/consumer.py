"""One consumer for all partitions that a source reads: one connection to each broker, one thread.

Invariants: the thread alone polls and assigns; what it has fetched and the job has not taken is
bounded, and a partition that is not read holds no other one back for long; a missing offset is
never silently a new beginning.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event as Flag
from typing import Any, Final

from tidelog.connectors.kafka.client import Cluster, failures, is_of_group, library, translated
from tidelog.connectors.kafka.reading.partitions import (
    EARLIEST,
    MADE_AGAIN,
    MissingOffset,
    Offsets,
    PartitionReader,
    TopicPartition,
    gone,
)
from tidelog.connectors.kafka.reading.records import Decoder
from tidelog.effects import Clock, daemon_thread
from tidelog.errors import ObjectNotFoundError, StorageError, StoreUnreachableError, TidelogError
from tidelog.events import Event

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_MESSAGES: Final = 1000
_MOST_RECORDS: Final = 8192
"""Records of a partition that wait for the job before no more are fetched."""
_MOST_BYTES: Final = 32 << 20
"""Bytes of messages of all partitions that do, shared among them."""
_PATIENCE_S: Final = 0.5
"""How long a full partition may hold up the others before it is paused. What librdkafka has
fetched of it by then is fetched again later, so a job that is merely slow is waited for."""
_ASK_S: Final = 1.0
_CLOSE_S: Final = 10.0


class SharedConsumer:
    """Reads partitions in a thread of its own, from `start` until `close`.

    `outage_s` is how long all brokers may be away; None: as long as it takes.
    """

    def __init__(
        self,
        client: Any,
        cluster: Cluster,
        decoder: Decoder,
        clock: Clock,
        *,
        on_missing: MissingOffset,
        outage_s: float | None,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._decoder = decoder
        self._clock = clock
        self._on_missing = on_missing
        self._outage_s = outage_s
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._requests: deque[Callable[[], None]] = deque()
        self._progress = Flag()
        self._closed = Flag()
        self._away_since: float | None = None
        self._ask_at = 0.0
        self._kafka = library()
        self._thread = daemon_thread(self._run, "tidelog-kafka")

    def open(self, partition: TopicPartition, position: Any, end: int | None) -> PartitionReader:
        """In the event loop: read a partition from a position."""
        reader = PartitionReader(partition, position, end, self._progress, self._leave)
        if not reader.at_end:
            self._requests.append(lambda: self._assign(reader))
        return reader

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit to the consumer group, for those who watch it; nothing here reads it."""
        positions = [
            self._kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()
        ]
        self._requests.append(lambda: self._commit(positions))

    def away(self) -> None:
        """In a poll: no broker answers."""
        if self._away_since is None:
            self._away_since = self._clock.monotonic()
            wait = "without end" if self._outage_s is None else f"{self._outage_s:g} s at most"
            Event.KAFKA_AWAY.log(logger, cluster=self._cluster, wait=wait)

    def close(self) -> bool:
        """End the thread, after what was asked for; blocks. False: it is still at work."""
        self._closed.set()
        self._progress.set()
        self._thread.join(_CLOSE_S)
        return not self._thread.is_alive()

    def _leave(self, reader: PartitionReader) -> None:
        self._requests.append(lambda: self._unassign(reader))

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._do_requests()
                self._wait_for_room()
                self._hand_out(self._fetch())
                self._watch_outage()
            self._do_requests()
        except Exception as error:  # the job must not wait for a thread that is gone
            self._fail(_ours(error, self._cluster))

    def _do_requests(self) -> None:
        while self._requests:
            self._requests.popleft()()

    def _fetch(self) -> Sequence[Any]:
        waits = any(reader.paused for reader in self._readers.values())
        first = self._client.poll(_POLL_S / 10 if waits else _POLL_S)
        if first is None:
            return ()
        return [first, *self._client.consume(_MESSAGES, 0)]

    def _hand_out(self, messages: Sequence[Any]) -> None:
        by_partition: dict[TopicPartition, list[Any]] = {}
        for message in messages:
            if message.topic() is None and is_of_group(message.error()):
                continue  # offsets that cannot be committed are logged where they are
            if message.topic() is None:
                self._fail(translated(message.error(), "", self._cluster))
            else:
                partition = TopicPartition(message.topic(), message.partition())
                by_partition.setdefault(partition, []).append(message)
        for partition, batch in by_partition.items():
            reader = self._readers.get(partition)
            if reader is not None:
                try:
                    self._take(reader, batch)
                except TidelogError as failure:
                    self._unassign(reader)
                    reader.fail(failure)

    def _take(self, reader: PartitionReader, messages: Sequence[Any]) -> None:
        """Hand messages of one partition over, as far as they are to be read."""
        good: list[Any] = []
        for message in messages:
            if message.error() is None:
                good.append(message)
            else:
                self._put(reader, good)
                good = []
                self._react(reader, message)
        self._put(reader, good)

    def _put(self, reader: PartitionReader, messages: list[Any]) -> None:
        if not messages:
            return
        self._back()
        reader.at_newest = False
        _, newest = self._client.get_watermark_offsets(
            library().TopicPartition(*reader.partition), cached=True
        )
        reader.newest = newest if newest >= 0 else None
        if reader.end is not None:
            batch = [message for message in messages if message.offset() < reader.end]
            position = reader.end if len(batch) < len(messages) else messages[-1].offset() + 1
        else:
            batch, position = messages, messages[-1].offset() + 1
        try:
            records = self._decoder.records(batch)
        except TidelogError:
            # What is good before the bad one is read first, so that a restart begins there.
            for message in batch:
                records = self._decoder.records([message])
                reader.put(records, message.offset() + 1, len(message))
            raise
        reader.put(records, position, sum(map(len, batch)))

    def _react(self, reader: PartitionReader, message: Any) -> None:
        """To what a poll says of a partition instead of a message."""
        error, kinds = message.error(), self._kafka.KafkaError
        if error.code() == kinds._PARTITION_EOF:
            self._back()
            reader.at_newest = True
            reader.put([], message.offset(), 0)
        elif error.code() == kinds._AUTO_OFFSET_RESET:
            self._find_offset(reader, message.offset(), error)
        else:
            where = f"{reader.partition}, offset {reader.fetched_to}"
            failure = translated(error, where, self._cluster)
            if not isinstance(failure, StoreUnreachableError):  # after which librdkafka goes on
                raise failure

    def _find_offset(self, reader: PartitionReader, offset: int, error: Any) -> None:
        """The partition has no such offset; raises unless the user wants to go on all the same."""
        partition, ask = reader.partition, Offsets(self._client, self._cluster, _ASK_S * 10)
        offset = reader.fetched_to if isinstance(reader.fetched_to, int) else offset
        try:
            oldest, end = ask.oldest(partition), ask.ends([partition])[partition]
        except StoreUnreachableError:  # ask again: the same answer comes to the next fetch
            self._unassign(reader)
            self._assign(reader)
            return
        if offset > end:
            raise gone(partition, offset, f"an end at offset {end}: {MADE_AGAIN}", self._cluster)
        if self._on_missing == "fail" or offset >= oldest:
            raise ObjectNotFoundError(
                f"{partition}, offset {offset} in {self._cluster}",
                expected="the message that the job is to read next",
                found=f"messages from offset {oldest} to {end} ({error.str()})",
                action="if retention has removed what the job had not read, go on without it: "
                'pass on_missing_offset="earliest" or "latest"',
                retry_safe=False,
            )
        next_offset = oldest if self._on_missing == EARLIEST else end
        Event.KAFKA_OFFSET_MISSING.log(logger, where=partition, offset=offset, found=next_offset)
        self._unassign(reader)
        reader.put([], next_offset, 0)
        self._assign(reader)

    def _assign(self, reader: PartitionReader) -> None:
        start = reader.fetched_to
        offset = start if isinstance(start, int) else self._kafka.OFFSET_BEGINNING
        with self._failures(reader):
            self._client.incremental_assign([self._kafka.TopicPartition(*reader.partition, offset)])
            self._readers[reader.partition] = reader

    def _unassign(self, reader: PartitionReader) -> None:
        if self._readers.pop(reader.partition, None) is not None:
            with self._failures(reader):
                self._client.incremental_unassign([self._kafka.TopicPartition(*reader.partition)])

    def _failures(self, reader: PartitionReader) -> Any:
        return failures(f"{reader.partition}, offset {reader.fetched_to}", self._cluster)

    def _wait_for_room(self) -> None:
        """Wait while the job has enough to do of all that there is; pause what it does not read."""
        give_up = self._clock.monotonic() + _PATIENCE_S
        while (full := self._full()) and not self._closed.is_set():
            remaining = give_up - self._clock.monotonic()
            if remaining <= 0 or self._starving():
                for reader in full:
                    self._client.pause([self._kafka.TopicPartition(*reader.partition)])
                    reader.paused = True
                break
            self._progress.clear()
            if self._full() and not self._starving():
                self._progress.wait(remaining)
        for reader in self._readers.values():
            if reader.paused and not self._is_full(reader, part=2):
                self._client.resume([self._kafka.TopicPartition(*reader.partition)])
                reader.paused = False

    def _starving(self) -> bool:
        """The job has taken all that was fetched of a partition which has more."""
        return any(not (r.paused or r.at_newest or r.waiting[0]) for r in self._readers.values())

    def _full(self) -> list[PartitionReader]:
        return [r for r in self._readers.values() if not r.paused and self._is_full(r)]

    def _is_full(self, reader: PartitionReader, part: int = 1) -> bool:
        records, size = reader.waiting
        share = _MOST_BYTES // len(self._readers)
        return records >= _MOST_RECORDS // part or size >= max(1, share // part)

    def _watch_outage(self) -> None:
        now = self._clock.monotonic()
        if self._away_since is None or now < self._ask_at:
            return
        self._ask_at = now + _ASK_S
        with suppress(self._kafka.KafkaException):
            self._client.list_topics(timeout=_ASK_S)
            self._back()
        if self._away_since is None or self._outage_s is None:
            return
        if now - self._away_since >= self._outage_s:
            self._fail(
                StoreUnreachableError(
                    str(self._cluster),
                    expected=f"an answer within {self._outage_s:g} s, as outage_s says",
                    found="none from any broker",
                    action="start the job again when the brokers are back; it goes on from its "
                    "last checkpoint",
                )
            )
            self._away_since = None

    def _back(self) -> None:
        if self._away_since is not None:
            seconds = self._clock.monotonic() - self._away_since
            self._away_since = None
            Event.KAFKA_BACK.log(logger, cluster=self._cluster, seconds=seconds)

    def _fail(self, failure: TidelogError) -> None:
        for reader in list(self._readers.values()):
            reader.fail(failure)

    def _commit(self, offsets: list[Any]) -> None:
        if self._away_since is not None:
            return
        try:
            # At the end there is no later poll in which an answer could come.
            self._client.commit(offsets=offsets, asynchronous=not self._closed.is_set())
        except self._kafka.KafkaException as error:
            self.not_committed(error.args[0])

    def not_committed(self, error: Any) -> None:
        """The consumer group has other offsets than the last checkpoint."""
        Event.KAFKA_OFFSETS_NOT_COMMITTED.log(logger, cluster=self._cluster, error=error.str())


def _ours(error: Exception, cluster: Cluster) -> TidelogError:
    if isinstance(error, TidelogError):
        return error
    if isinstance(error, library().KafkaException):
        return translated(error.args[0], "", cluster)
    return StorageError(
        str(cluster),
        found=f"{type(error).__name__}: {error}",
        action="start the job again; if it happens again, report this",
    )
