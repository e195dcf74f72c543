"""Records that the brokers refuse when they are moved from staging to their topics."""

from dataclasses import dataclass, replace
from typing import Any, Final

from tidelog.connectors.kafka.client import Cluster
from tidelog.connectors.kafka.dead_letters import letter_headers
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.connectors.kafka.writing.staging import StagedRange
from tidelog.errors import StorageError

_LASTING: Final = frozenset(
    {
        *("INVALID_RECORD", "INVALID_TIMESTAMP", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"),
        *("_UNKNOWN_PARTITION", "POLICY_VIOLATION", "INVALID_MSG", "_INVALID_ARG"),
    }
)
"""Names of errors that are the record's own, and stay."""


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
            "max.message.bytes) and start again; or let go of it, with "
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
