"""What the exactly-once sink writes down about its records, and what follows from it.

Records wait in a partition of a *staging* topic, one partition for each subtask number. The same
partition of a topic of *commits* says in its last message how many records of each start of the
job were moved on to their topics. Invariants: that message is written in the transaction that moves
the records, so it is never wrong; who moves records has read it after fencing the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec

from tidelog.connectors import transactions
from tidelog.connectors.kafka.client import Cluster, letter_headers
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.connectors.transactions import TransactionId, Writer
from tidelog.errors import FencedError, ObjectNotFoundError, StorageError
from tidelog.ids import CheckpointId
from tidelog.options.units import plural

_HEADER: Final = "tidelog"
"""Name of the header that holds the envelope; the first one of a staged message."""
_LASTING: Final = frozenset(
    {
        *("INVALID_RECORD", "INVALID_TIMESTAMP", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"),
        *("_UNKNOWN_PARTITION", "POLICY_VIOLATION", "INVALID_MSG", "_INVALID_ARG"),
    }
)
"""Names of errors that are the record's own, and stay."""


class StagingStart(NamedTuple):
    """One start of a job."""

    generation: int
    attempt: str

    def __str__(self) -> str:
        return f"{self.generation}-{self.attempt}"


class StagedRange(msgspec.Struct, frozen=True, array_like=True, tag="kafka"):
    """A pre-committed transaction: consecutive records that one start has staged."""

    topic: str
    partition: int
    start: StagingStart
    first: int
    """Number of the first record; a start counts its records in a partition from 0."""
    records: int
    begin: int
    """Offset of the first record."""
    end: int
    """Offset after the last one; other starts may have written in between."""

    @property
    def stop(self) -> int:
        """Number after the last record."""
        return self.first + self.records

    def id(self, sink: str, checkpoint: CheckpointId) -> TransactionId:
        return TransactionId(sink, self.partition, *self.start, checkpoint)

    def __str__(self) -> str:
        numbers = f"records {self.first} to {self.stop - 1} of start {self.start}"
        return f"{numbers} in partition {self.partition} of topic {self.topic!r}"


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """The header that a staged record has before its own: who wrote it, and where it goes.

    Key and time are in it because a topic that is compacted by mistake drops records by key, and
    one whose records are old by their own time drops them at once.
    """

    generation: int
    attempt: str
    number: int
    topic: str
    key: bytes | None
    partition: int
    """-1: the partitioner of Kafka's client decides."""
    timestamp: int
    """Milliseconds; 0: when it is moved."""


_encode_envelope = msgspec.msgpack.Encoder().encode
_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode


def wrapped(
    message: Message, start: StagingStart, number: int, topic: str, partition: int
) -> Message:
    """A record as it waits in a partition of the staging topic."""
    envelope = Envelope(
        *start, number, message.topic, message.key, message.partition, message.timestamp
    )
    headers = [(_HEADER, _encode_envelope(envelope)), *message.headers]
    return Message(topic, None, message.value, headers, partition, 0)


def unwrapped(staged: Any, start: StagingStart) -> tuple[int, Message] | None:
    """Number and record of a staged message; None when it is not of this start."""
    headers = staged.headers()
    if not headers or headers[0][0] != _HEADER:
        return None
    try:
        envelope = _decode_envelope(headers[0][1])
    except (msgspec.DecodeError, TypeError):
        return None
    if (envelope.generation, envelope.attempt) != start:
        return None
    return envelope.number, Message(
        envelope.topic,
        envelope.key,
        staged.value(),
        headers[1:],
        envelope.partition,
        envelope.timestamp,
    )


class Commits(msgspec.Struct, frozen=True):
    """The last message of a partition of the topic of commits."""

    owner: StagingStart
    """The newest start that may move records."""
    moved: dict[str, int]
    """How many records were moved, for each start that a checkpoint may ask for."""

    def after(self, start: StagingStart, count: int) -> "Commits":
        """With so many records of a start moved."""
        return Commits(self.owner, {**self.moved, str(start): count})

    def only(self, starts: Iterable[StagingStart]) -> "Commits":
        """Without the starts that nobody asks for any more; the owner's stays."""
        names = {str(start) for start in (*starts, self.owner)}
        return Commits(self.owner, {name: n for name, n in self.moved.items() if name in names})


def decode_commits(value: bytes | None, where: str) -> Commits:
    """Raises ObjectNotFoundError for a message that this sink did not write."""
    try:
        return msgspec.json.decode(value or b"", type=Commits)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ObjectNotFoundError(
            f"the commits of a Kafka sink in {where}",
            expected="what this sink wrote",
            found=str(error),
            action="let nothing else write to that topic; choose another prefix=",
            retry_safe=False,
        ) from error


def taken_over(commits: Commits | None, me: StagingStart, transactional_id: str) -> Commits:
    """The commits with this start as their owner; raises FencedError when a newer one has begun."""
    if commits is None:
        return Commits(me, {str(me): 0})
    if not Writer(*commits.owner).gives_way(Writer(*me)):
        raise fenced(me, commits.owner, transactional_id)
    return Commits(me, {str(me): 0, **commits.moved})


def fenced(me: StagingStart, owner: StagingStart, transactional_id: str) -> FencedError:
    """The error of a start that finds another one in its place."""
    return FencedError(
        f"start {me} of the Kafka sink with the transactional id {transactional_id!r}",
        expected="to be the newest start that uses it",
        found=f"start {owner}",
        action="let the newer start of the job go on; if it is another job or another store, give "
        "one of the two another prefix=; if there is none because the job began again in a new "
        "store, give it another prefix= or delete the topics of this one",
        retry_safe=False,
    )


def first_left(commits: Commits, staged: StagedRange) -> int:
    """Number of the first record that was not moved, `staged.stop` when all of them were.

    Raises ObjectNotFoundError when that cannot be known.
    """
    count = commits.moved.get(str(staged.start))
    if count is None:
        raise lost(staged, "nothing about that start in the topic of commits")
    if count < staged.first:
        raise lost(staged, f"{plural(count, 'record')} of that start moved before them")
    return min(count, staged.stop)


def lost(staged: StagedRange, found: str) -> ObjectNotFoundError:
    """The error of records that a checkpoint names and nobody can move."""
    return topics_are_gone(str(staged), "all of them, or that they were moved", found)


def topics_are_gone(what: str, expected: str, found: str) -> ObjectNotFoundError:
    """The error of what was in the topics of the sink and is not any more."""
    return ObjectNotFoundError(
        what,
        expected=expected,
        found=found,
        action="bring back the topics of this sink, or restore a checkpoint that is retained",
        retry_safe=False,
    )


def own_ranges(topic: str, partition: int, tokens: Iterable[bytes]) -> list[StagedRange]:
    """The transactions among those that checkpoints keep which are of this staging partition."""
    ranges = transactions.those_of(StagedRange, tokens)
    return [staged for staged in ranges if (staged.topic, staged.partition) == (topic, partition)]


def unneeded_before(end: int, commits: Commits, ranges: Iterable[StagedRange]) -> int:
    """The offset up to which nobody asks for staged records, at most `end`.

    What was moved is not asked for again, whichever checkpoint names it.
    """
    waiting = (s.begin for s in ranges if commits.moved.get(str(s.start), s.stop) < s.stop)
    return min((end, *waiting))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A staged record, and why its topic does not take it."""

    staged: StagedRange
    number: int
    """The record's number among those that its start of the job has staged."""
    offset: int
    """Offset in the staging topic."""
    message: Message
    why: str = ""

    def by(self, error: Any) -> "Refusal | None":
        """The record, refused for this error of Kafka; None for one that may pass."""
        lasts = error.name() in _LASTING
        return replace(self, why=f"{error.str()} ({error.name()})") if lasts else None

    @property
    def what(self) -> str:
        """Which record, for people."""
        staged, message = self.staged, self.message
        partition = "" if message.partition < 0 else f", partition {message.partition}"
        return (
            f"at offset {self.offset} of partition {staged.partition} of {staged.topic!r}, for "
            f"topic {message.topic!r}{partition}"
        )

    def error(self, cluster: Cluster) -> StorageError:
        """The error of a commit that cannot move it."""
        return StorageError(
            f"the staged record {self.what}, in {cluster}",
            expected="one that its topic takes",
            found=self.why,
            action="change the topic so that it takes the record (its partitions, cleanup.policy, "
            "max.message.bytes) and start again; or go on without it, with "
            "KafkaSink(on_refused=DeadLetterTopic('name')) or on_refused='skip'",
        )

    def letter(self, topic: str) -> Message:
        """The record as it goes to a dead-letter topic."""
        message, staged = self.message, self.staged
        headers = letter_headers(
            message.headers,
            message.topic,
            message.partition,
            staged=f"{staged.topic}/{staged.partition}/{self.offset}",
            error=self.why,
        )
        return Message(topic, message.key, message.value, headers, -1, message.timestamp)
