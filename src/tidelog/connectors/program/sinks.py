"""Standard output and functions as sinks: at least once.

Invariants: the function has seen every record, in order, before the checkpoint that holds it; what
was printed before a checkpoint was flushed before it. After a write or flush that failed there is
no checkpoint any more, because the stream may have dropped what it held.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, TextIO

from tidelog.connectors.arguments import typed
from tidelog.connectors.line_encoding import EncodeLines, Format, line_encoder
from tidelog.errors import ConfigError, StorageError, require
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.storage import errors


class Callback(Sink):
    """Calls `function(record)` for every record and `flush()` at every checkpoint.

    Both run in the event loop's process and should be short; after a failure, records since the
    last checkpoint come again. Their exceptions pass through and stop the job. Raises ConfigError
    for functions that are `async`: nobody would await them.
    """

    @typed
    def __init__(
        self, function: Callable[[Any], object], flush: Callable[[], object] | None = None
    ) -> None:
        for what, given in (("function", function), ("flush", flush)):
            plain = not iscoroutinefunction(given)
            require(f"{what} of a Callback", given, plain, "a function that is not `async`")
        self._function = function
        self._flush = flush

    def open(self, context: SinkContext) -> "CallbackWriter":
        return CallbackWriter(self._function, self._flush)


@dataclass(eq=False)
class CallbackWriter(SinkWriter):
    """Hands records to the function."""

    _function: Callable[[Any], object]
    _flush: Callable[[], object] | None

    def write(self, records: Sequence[Any]) -> None:
        for record in records:
            self._function(record)

    def pre_commit(self, checkpoint: CheckpointId) -> None:
        if self._flush is not None:
            self._flush()


class Stdout(Sink):
    """Prints records as lines; after a failure, lines since the last checkpoint come again.

    `fields` names the values of tuples in JSON. Raises ConfigError for an unknown format.
    """

    @typed
    def __init__(self, format: Format = "text", *, fields: Sequence[str] | None = None) -> None:
        self._encode = line_encoder(format, fields)

    def open(self, context: SinkContext) -> "StdoutWriter":
        return StdoutWriter(self._encode, sys.stdout)


class StdoutWriter(SinkWriter):
    """Raises StorageError when the output is closed or full, ConfigError when its encoding lacks a
    character.
    """

    def __init__(self, encode: EncodeLines, stream: TextIO) -> None:
        self._encode = encode
        self._stream = stream
        self._failed: StorageError | None = None

    def write(self, records: Sequence[Any]) -> None:
        text = self._encode(records).decode()
        with self._failures():
            self._stream.write(text)

    def pre_commit(self, checkpoint: CheckpointId) -> None:
        with self._failures():
            self._stream.flush()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except UnicodeEncodeError as error:
            raise ConfigError(
                "standard output",
                expected="an encoding that has the characters of all records",
                found=str(error),
                action="set PYTHONIOENCODING=utf-8 and start again",
            ) from error
        except BrokenPipeError as error:
            self._failed = StorageError(
                "standard output",
                expected="a reader until the job ends",
                found="that it has gone",
                action="start the job again: lines since its last checkpoint come again",
            )
            raise self._failed from error
        except OSError as error:
            self._failed = errors.from_os_error(error, "standard output")
            raise self._failed from error
