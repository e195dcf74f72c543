"""Records as messages for Kafka."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from tidelog.connectors.records import jsonable
from tidelog.credentials import value_text
from tidelog.errors import UserFunctionError, require

Format = Literal["json", "text", "raw"] | Callable[[Any], str | bytes | None]
"""JSON, `str` of the record, the record itself, or a function from record to text or bytes."""

Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]


class Message(NamedTuple):
    """What Kafka keeps of a record."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int = -1
    """-1: the partitioner of Kafka's client decides."""
    timestamp: int = 0
    """Milliseconds; 0: the time at which it is sent."""


class Messages:
    """Makes messages of records; raises ConfigError for a format that is none."""

    def __init__(
        self,
        topic: str | Callable[[Any], str],
        key: Format | None,
        value: Format,
        headers: Callable[[Any], Headers] | None,
        partition: Callable[[Any], int] | None,
        timestamp: Callable[[Any], int] | None,
    ) -> None:
        require("topic of a Kafka sink", topic, bool(topic), "a name or a function")
        self._topic = topic
        self._key = None if key is None else _encoder("key", key)
        self._value = _encoder("value", value)
        self._headers = headers
        self._partition = partition
        self._timestamp = timestamp

    @property
    def fixed_topic(self) -> str | None:
        """The topic of all records; None when a function chooses it."""
        return self._topic if isinstance(self._topic, str) else None

    @property
    def one_place(self) -> bool:
        """Neither the topic nor the partition depends on the record."""
        return isinstance(self._topic, str) and self._partition is None

    def of(self, record: Any) -> Message:
        """Raises UserFunctionError for what Kafka cannot keep; a function's errors pass through."""
        topic = self._topic
        return Message(
            topic if isinstance(topic, str) else _checked("topic", topic(record), str),
            None if self._key is None else self._key(record),
            self._value(record),
            [] if self._headers is None else _headers(self._headers(record)),
            -1 if self._partition is None else _number("partition", self._partition(record)),
            0 if self._timestamp is None else _number("timestamp", self._timestamp(record)),
        )


def _encoder(part: str, format: Format) -> Callable[[Any], bytes | None]:
    if callable(format):
        function = format
        return lambda record: _bytes(part, function(record))
    expected = f"{', '.join(map(repr, _FORMATS))} or a function from record to bytes"
    require(f"{part} of a Kafka sink", repr(format), format in _FORMATS, expected)
    encode = _FORMATS[format]

    def checked(record: Any) -> bytes | None:
        try:
            return encode(record)
        except (TypeError, ValueError, RecursionError) as error:
            raise refused(part, f"a record that {format!r} can encode", str(error)) from error

    return checked


_FORMATS: Final[dict[str, Callable[[Any], bytes | None]]] = {
    "json": lambda record: msgspec.json.encode(jsonable(record)),
    "text": lambda record: str(record).encode(),
    "raw": lambda record: _bytes("value", record),
}


def _bytes(part: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise refused(part, "bytes, text or None", f"a {type(value).__name__}")


def _headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(_checked("header", name, str), _bytes("header", value)) for name, value in pairs]


def _number(part: str, value: Any) -> int:
    number: int = _checked(part, value, int)
    if number not in _NUMBERS:
        raise refused(part, "0 or more, in 64 bits", str(number))
    return +number  # a bool would be none any more for who reads it from the staging topic


_NUMBERS: Final = range(1 << 63)


def _checked(part: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or value == "":
        raise refused(part, f"a {kind.__name__}", value_text(value, 50))
    return value


def refused(part: str, expected: str, found: str) -> UserFunctionError:
    """The error of a record that no message can be made of, or none that a topic takes."""
    return UserFunctionError(
        f"the {part} of a record for a Kafka sink",
        expected=expected,
        found=found,
        action="change the record before the sink, or the function that makes the message",
    )
