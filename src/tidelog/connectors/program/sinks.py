"""Standard output and functions as sinks: at least once.

Invariants: the function has seen every record, in order, before the checkpoint that holds it; what
is printed is written at once, and one process prints at a time, so that lines stand whole among
those of other workers; a reader that is slow holds up the sink and not the job. A write that failed
ends the job, because the stream may have dropped what it held.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, TextIO

from tidelog.connectors.arguments import typed
from tidelog.connectors.records import EncodeLines, Format, line_encoder
from tidelog.errors import ConfigError, StorageError, require
from tidelog.ids import CheckpointId
from tidelog.outlet import Outlet, outlet_of
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.storage import errors


class ForeachSink(Sink):
    """Calls `function(record)` for every record and `flush()` at every checkpoint.

    Both run in the event loop's process and should be short; after a failure, records since the
    last checkpoint come again. Their exceptions pass through and stop the job. Raises ConfigError
    for functions that are `async`: nobody would await them.
    """

    @typed
    def __init__(
        self, function: Callable[[Any], object], flush: Callable[[], object] | None = None
    ) -> None:
        for what, callback in (("function", function), ("flush", flush)):
            plain = not iscoroutinefunction(callback)
            require(f"{what} of a ForeachSink", callback, plain, "a function that is not `async`")
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


class StdoutSink(Sink):
    """Prints records as lines; after a failure, lines since the last checkpoint come again.

    `fields` names the values of tuples in JSON. Raises ConfigError for an unknown format.
    """

    @typed
    def __init__(self, format: Format = "text", *, fields: Sequence[str] | None = None) -> None:
        self._encode = line_encoder(format, fields)

    def open(self, context: SinkContext) -> "StdoutWriter":
        return StdoutWriter(self._encode, sys.stdout, outlet_of(sys.stdout))


@dataclass(eq=False)
class StdoutWriter(SinkWriter):
    """Raises StorageError for a closed or full output, ConfigError for a character it lacks."""

    _encode: EncodeLines
    _stream: TextIO
    _outlet: Outlet | None
    """Prints in a thread; None for a stream without a file, which no reader holds up."""
    _text: str = ""

    def write(self, records: Sequence[Any]) -> None:
        text = self._encode(records).decode()
        if self._outlet is not None:
            self._text += text
            return
        with _failures():
            self._stream.write(text)
            self._stream.flush()

    def full(self) -> bool:
        """Every text is printed before the next one."""
        return bool(self._text)

    def make_room(self) -> None:
        text, self._text = self._text, ""
        assert self._outlet is not None
        with _failures():
            self._outlet.print(text)


@contextmanager
def _failures() -> Iterator[None]:
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
        raise StorageError(
            "standard output",
            expected="a reader until the job ends",
            found="that it has gone",
            action="start the job again: lines since its last checkpoint come again",
        ) from error
    except OSError as error:
        raise errors.from_os_error(error, "standard output") from error
