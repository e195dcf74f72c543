"""What a message of Kafka becomes for a job, and what happens to one that cannot be decoded.

Invariant: a message is a record, an error that names its topic, partition and offset, or one that
was skipped as the user wished: counted, and in the dead-letter topic before the job goes on.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from tidelog.connectors.kafka.client import (
    Cluster,
    DeadLetterTopic,
    OnError,
    check_policy,
    letter_headers,
)
from tidelog.connectors.kafka.writing.messages import Message
from tidelog.connectors.kafka.writing.producing import Outbox
from tidelog.effects import Clock
from tidelog.errors import CorruptObjectError, require
from tidelog.events import Event
from tidelog.runtime.user_code import FAILURES, map_all

logger = logging.getLogger(__name__)


class KafkaRecord(msgspec.Struct, frozen=True):
    """One message, with key and value as they were decoded."""

    key: Any
    value: Any
    """None also for a tombstone, a message without a value."""
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    """Milliseconds since 1970: when it was produced or, if the topic says so, appended; -1 when
    there is none."""
    topic: str
    partition: int
    offset: int


Decode = Literal["bytes", "text", "json"] | Callable[[bytes], Any]

_DECODERS: Final[dict[Any, Callable[[bytes], Any]]] = {
    "bytes": bytes,
    "text": bytes.decode,
    "json": msgspec.json.Decoder().decode,
}
_LOG_EVERY_S: Final = 10.0


class Decoder:
    """Makes records of messages; raises ConfigError for an unknown way to do so."""

    def __init__(
        self, key: Decode, value: Decode, on_error: OnError, cluster: Cluster, clock: Clock
    ) -> None:
        self._arguments = key, value, on_error, cluster, clock
        self._key, self._value = _decoder("key", key), _decoder("value", value)
        check_policy("on_error", on_error)
        self._on_error = on_error
        self._cluster = cluster
        self._letters: Outbox | None = None
        """Dead letters go there at least once: a restart reads such messages again."""
        self._clock = clock
        self._log_at: float | None = None
        self.skipped = 0
        """Messages that could not be decoded and did not stop the job."""

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it is made of its arguments: a decoder of msgspec stays in one."""
        return type(self), self._arguments

    def records(self, messages: Sequence[Any]) -> list[KafkaRecord]:
        """The records of messages; raises CorruptObjectError, and what dead letters raise."""
        try:
            return map_all(self._record, messages)
        except FAILURES:
            return self._one_by_one(messages)

    def _record(self, message: Any) -> KafkaRecord:
        key, value = message.key(), message.value()
        return KafkaRecord(
            None if key is None else self._key(key),
            None if value is None else self._value(value),
            tuple(message.headers() or ()),
            message.timestamp()[1],
            message.topic(),
            message.partition(),
            message.offset(),
        )

    def _one_by_one(self, messages: Sequence[Any]) -> list[KafkaRecord]:
        records = []
        for message in messages:
            try:
                records.append(self._record(message))
            except FAILURES as error:
                if self._on_error == "fail":
                    raise CorruptObjectError(
                        where_of(message),
                        expected="a message that `key` and `value` of the source decode",
                        found=f"{type(error).__name__}: {error}",
                        action='correct the decoding, or pass on_error="skip" or '
                        "on_error=DeadLetterTopic(...) to go on without such messages",
                    ) from error
                self._leave_out(message, error)
        if self._letters is not None:
            self._letters.flush()
        return records

    def _leave_out(self, message: Any, error: BaseException) -> None:
        self.skipped += 1
        if isinstance(self._on_error, DeadLetterTopic):
            if self._letters is None:
                self._letters = Outbox(self._cluster, "dead-letter topic")
            headers = letter_headers(
                message.headers(),
                message.topic(),
                message.partition(),
                offset=str(message.offset()),
                error=f"{type(error).__name__}: {error}",
            )
            topic = self._on_error.topic
            self._letters.add(Message(topic, message.key(), message.value(), headers))
        now = self._clock.monotonic()
        if self._log_at is None or now >= self._log_at:
            self._log_at = now + _LOG_EVERY_S
            Event.KAFKA_MESSAGES_SKIPPED.log(
                logger, skipped=self.skipped, where=where_of(message), error=repr(error)
            )


def where_of(message: Any) -> str:
    """Topic, partition and offset of a message, as errors name it."""
    return f"topic {message.topic()!r}, partition {message.partition()}, offset {message.offset()}"


def _decoder(what: str, decode: Decode) -> Callable[[bytes], Any]:
    function: Any = _DECODERS.get(decode) if isinstance(decode, str) else decode
    expected = "'bytes', 'text', 'json' or a function of the bytes"
    require(f"{what} of a KafkaSource", repr(decode), callable(function), expected)
    decoder: Callable[[bytes], Any] = function
    return decoder
