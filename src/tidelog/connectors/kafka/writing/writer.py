"""The writer of one subtask of the exactly-once sink.

Invariants: a record is sent to the staging topic at once, and to its own topic by a commit alone;
older starts have been fenced before anything is staged; staged records are deleted when they were
moved, or when no retained checkpoint names them.
"""

from collections.abc import Sequence
from typing import Any

from tidelog.connectors import transactions as tokens
from tidelog.connectors.kafka.client import Cluster
from tidelog.connectors.kafka.dead_letters import OnError
from tidelog.connectors.kafka.writing.messages import Message, Messages
from tidelog.connectors.kafka.writing.mover import Mover
from tidelog.connectors.kafka.writing.outbox import Outbox
from tidelog.connectors.kafka.writing.staging import (
    HEADER,
    Envelope,
    StagedRange,
    Start,
    encode_envelope,
    own_ranges,
)
from tidelog.connectors.kafka.writing.targets import Targets
from tidelog.connectors.kafka.writing.topics import Topics
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import SinkContext, SinkWriter
from tidelog.runtime.user_code import each


class StagingWriter(SinkWriter):
    """Stages records and moves them; raises errors of `tidelog.errors`."""

    def __init__(
        self,
        messages: Messages,
        targets: Targets,
        topics: Topics,
        cluster: Cluster,
        me: SinkContext,
        on_refused: OnError,
    ) -> None:
        self._cluster = cluster
        self._messages = messages
        self._targets = targets
        self._context = me
        self._on_refused = on_refused
        self._start = Start(me.generation, me.attempt)
        self._topics = topics
        self._partitions = topics.make(me.parallelism)
        self._outbox = Outbox(cluster)
        self._movers: dict[int, Mover] = {}
        self._staged = self._pre_committed = 0
        """How many records of this start were staged, and how many are in a transaction."""
        self._named: list[StagedRange] = []
        """What checkpoints name of our partition that other starts have staged."""

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Fence older starts, commit these, delete what no retained checkpoint names."""
        pending = [self._decoded(transaction) for transaction in transactions]
        numbers = {staged.partition for staged in pending if staged.topic == self._topics.staging}
        answered = set(filter(self._context.answers_for, range(self._partitions)))
        for partition in sorted(numbers | answered):
            # What is staged after this was staged by a successor.
            end = self._topics.end_of_staging(partition)
            self._mover(partition).begin()
            for staged in pending:
                if staged.partition == partition:
                    self._mover(partition).move(staged)
            self._remove_left_over(partition, end, transactions)
            if partition != self._context.subtask:
                self._movers.pop(partition).close()
        for staged in pending:
            if staged.topic != self._topics.staging:
                self._mover(self._context.subtask).move(staged)  # raises what is to be done

    def write(self, records: Sequence[Any]) -> None:
        """Send records to the staging topic; raises UserFunctionError for one that does not fit."""
        for message in each(self._messages.of, records):
            self._targets.admit(message)
            self._outbox.add(self._wrapped(message))
            self._staged += 1

    def full(self) -> bool:
        """Whether what was sent and not delivered has reached its limit."""
        return self._outbox.full()

    def make_room(self) -> None:
        """Wait until half of it was delivered."""
        self._outbox.make_room()

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        """Wait until every record is in the staging topic."""
        if self._staged == self._pre_committed:
            return None
        self._targets.check()
        self._outbox.flush()
        assert self._outbox.first_offset is not None
        staged = StagedRange(
            self._topics.staging,
            self._context.subtask,
            self._start,
            self._pre_committed,
            self._staged - self._pre_committed,
            self._outbox.first_offset,
            self._outbox.next_offset,
        )
        self._pre_committed = self._staged
        self._outbox.forget_offsets()
        return tokens.encode(staged)

    def commit(self, transaction: bytes) -> None:
        """Move a transaction's records to their topics, in transactions of Kafka."""
        staged = self._decoded(transaction)
        mover = self._mover(staged.partition)
        mover.move(staged)
        if self._context.retained is not None and staged.partition == self._context.subtask:
            mover.cut(staged.end, self._named)

    def close(self) -> None:
        """Release the clients; what was not committed waits in the staging topic."""
        self._outbox.close()
        for mover in self._movers.values():
            mover.close()
        self._topics.close()

    def _wrapped(self, message: Message) -> Message:
        envelope = Envelope(
            *self._start,
            self._staged,
            message.topic,
            message.key,
            message.partition,
            message.timestamp,
        )
        headers = [(HEADER, encode_envelope(envelope)), *message.headers]
        return Message(self._topics.staging, None, message.value, headers, self._context.subtask, 0)

    def _mover(self, partition: int) -> Mover:
        found = self._movers.get(partition)
        if found is None:
            found = Mover(self._cluster, self._topics, partition, self._start, self._on_refused)
            self._movers[partition] = found
        return found

    def _remove_left_over(self, partition: int, end: int, transactions: Sequence[bytes]) -> None:
        retained = self._context.retained
        if retained is None:
            return
        named = own_ranges(self._topics.staging, partition, (*retained, *transactions))
        mover = self._mover(partition)
        mover.forget_all_but({staged.start for staged in named})
        mover.cut(end, named)
        if partition == self._context.subtask:
            self._named = named

    def _decoded(self, transaction: bytes) -> StagedRange:
        return tokens.decode(self._context.name, StagedRange, transaction)
