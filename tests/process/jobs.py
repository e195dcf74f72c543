"""Jobs for tests that kill them: slow, and held back before their last lines until released.

The file that TIDELOG_TEST_RELEASE names releases them, so a test decides when a job may end.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from operator import add, attrgetter, itemgetter
from pathlib import Path
from typing import Any

from tidelog import Sliding
from tidelog.connectors.files.lines import JsonLinesSource, TextFileSource
from tidelog.connectors.files.sink import FileSink
from tidelog.connectors.program import IterableSource, StdoutSink
from tidelog.connectors.sql import PostgresSink, SqliteSink
from tidelog.examples import sessions as example
from tidelog.examples.wordcount import count_words
from tidelog.runtime.config import JobArguments
from tidelog.runtime.graph import Job, KeyedStream, Stream
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.source import SplitReader

CHUNK = 1024
PAUSE_S = 0.01


def released() -> bool:
    return Path(os.environ["TIDELOG_TEST_RELEASE"]).exists()


class Slowly(SplitReader):
    """A line reader that pauses before each chunk and waits before the last one."""

    delay_s = 0.05

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    @property
    def position(self) -> Any:  # type: ignore[override]  # read only here
        return self._reader.position

    def read(self) -> list[Any] | None:
        time.sleep(PAUSE_S)
        offset, limit, *_ = self.position
        if limit - offset <= CHUNK and not released():
            return []
        return self._reader.read()

    def close(self) -> None:
        self._reader.close()


class SlowText(TextFileSource):
    def open(self, split: str, position: Any) -> Any:
        return Slowly(super().open(split, position))


class SlowJson(JsonLinesSource):
    def open(self, split: str, position: Any) -> Any:
        return Slowly(super().open(split, position))


def _lines(job: Job, arguments: JobArguments) -> Stream:
    return job.source(SlowText(arguments.required_input(), chunk_bytes=CHUNK))


def wordcount(arguments: JobArguments) -> Job:
    job = Job("wordcount")
    words = _lines(job, arguments).map_batches(count_words)
    counts = words.key_by(itemgetter(0)).aggregate(itemgetter(1), add, name="count")
    counts.sink(FileSink(arguments.output, fields=("word", "count")))
    return job


class MortalFiles(FileSink):
    """Files whose process is killed in the commits of the final checkpoint, once."""

    def open(self, context: SinkContext) -> SinkWriter:
        writer, store = super().open(context), Path(os.environ["TIDELOG_TEST_STORE"])
        commit = writer.commit

        def mortal_commit(transaction: bytes) -> None:
            spared = int(os.environ["TIDELOG_TEST_SPARED_COMMITS"])
            killed, done = store.with_name("killed"), store.with_name("committed")
            newest = max(store.glob("checkpoints/*.json"))
            if b'"final":true' in newest.read_bytes() and not killed.exists():
                if (len(done.read_text()) if done.exists() else 0) >= spared:
                    killed.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                with done.open("a") as marks:
                    marks.write(".")
            commit(transaction)

        writer.commit = mortal_commit  # type: ignore[method-assign]
        return writer


def mortal(arguments: JobArguments) -> Job:
    """Every line to the output; dies while it commits the last ones."""
    job = Job("mortal")
    lines = _lines(job, arguments).rebalance().map(str, name="copy")
    lines.sink(MortalFiles(arguments.output, "text"))
    return job


def copy(arguments: JobArguments) -> Job:
    """Every line to the output, through another task."""
    job = Job("copy")
    _lines(job, arguments).rebalance().map(str, name="copy").sink(
        FileSink(arguments.output, "text")
    )
    return job


def copy_to_sqlite(arguments: JobArguments) -> Job:
    """Every line into a table, through another task."""
    job = Job("copy")
    database = Path(os.environ["TIDELOG_TEST_DATABASE"])
    _table_rows(job, arguments).sink(SqliteSink(database, "lines", {"line": "TEXT"}))
    return job


def copy_to_postgres(arguments: JobArguments) -> Job:
    """Every line into a table on a server, through another task."""
    job = Job("copy")
    server = os.environ["TIDELOG_TEST_DATABASE"]
    _table_rows(job, arguments).sink(PostgresSink(server, "lines", {"line": "text"}))
    return job


def counts_to_sqlite(arguments: JobArguments) -> Job:
    """The newest count of every word in a table with one row for each."""
    database = Path(os.environ["TIDELOG_TEST_DATABASE"])
    columns = {"word": "TEXT", "n": "INTEGER"}
    return _newest_counts(arguments, SqliteSink(database, "counts", columns, key=["word"]))


def counts_to_postgres(arguments: JobArguments) -> Job:
    """The same on a server."""
    server = os.environ["TIDELOG_TEST_DATABASE"]
    columns = {"word": "text", "n": "bigint"}
    return _newest_counts(arguments, PostgresSink(server, "counts", columns, key=["word"]))


def _newest_counts(arguments: JobArguments, sink: Sink) -> Job:
    job = Job("counts")
    words = _lines(job, arguments).map_batches(count_words)
    words.key_by(itemgetter(0)).aggregate(itemgetter(1), add, emit_updates=True).sink(sink)
    return job


def names(arguments: JobArguments) -> Job:
    """The lines of all files but the first, each with the line of its number in the first one."""

    def number(line: str) -> str:
        return line.partition(" ")[0].partition("-")[2]

    job, directory = Job("names"), arguments.required_input()
    table, lines = (
        job.source(SlowText(directory, include, chunk_bytes=CHUNK), name=name)
        .filter(bool, name=f"{name}-filled")
        .key_by(number)
        for name, include in (("table", "0.txt"), ("lines", "[12].txt"))
    )
    both = lines.enrich(table, lambda line, row: f"{line} | {row}", time="processing")
    both.sink(FileSink(arguments.output, "text"))
    return job


def _table_rows(job: Job, arguments: JobArguments) -> Stream:
    return _lines(job, arguments).rebalance().map(lambda line: (line,), name="row")


def _events(job: Job, arguments: JobArguments) -> KeyedStream:
    events = job.source(SlowJson(arguments.required_input(), chunk_bytes=CHUNK))
    timed = events.event_time(attrgetter("time_ms"), max_delay_ms=example.MAX_DELAY_MS)
    return timed.key_by(attrgetter("user"))


def sessions(arguments: JobArguments) -> Job:
    job = Job("sessions")
    closed = _events(job, arguments).transform_with_state(example.Sessions, time_mode="event")
    closed.sink(FileSink(arguments.output))
    return job


def windows(arguments: JobArguments) -> Job:
    """Events per user in windows of a minute, every 20 seconds."""
    job = Job("windows")
    counts = _events(job, arguments).window(Sliding(60_000, 20_000)).aggregate(lambda row: 1, add)
    counts.sink(FileSink(arguments.output, fields=("user", "start_ms", "events")))
    return job


def stuck(arguments: JobArguments) -> Job:
    """Reads for ever, in a thread that nothing can interrupt."""

    def records() -> Iterator[int]:
        Path(arguments.output, "reading").touch()
        while True:
            time.sleep(0.1)
        yield 0

    job = Job("stuck")
    job.source(IterableSource(records, blocking=True)).sink(StdoutSink())
    return job


def endless(arguments: JobArguments) -> Job:
    """A job whose map function never returns. The function makes a file `called`, and a file
    `signalled` when SIGINT has its default action again.
    """
    output = Path(arguments.output)

    def forever(record: int) -> int:
        output.joinpath("called").touch()
        while True:
            time.sleep(0.1)
            if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
                output.joinpath("signalled").touch()

    job = Job("endless")
    job.source(IterableSource([0])).map(forever).sink(StdoutSink())
    return job


def hangs(arguments: JobArguments) -> Job:
    """Every line to the output; a function of operator `wait` never returns once it is released."""

    def wait_for_ever(line: str) -> str:
        while released():
            time.sleep(0.1)
        return line

    job = Job("hangs")
    lines = _lines(job, arguments).map(wait_for_ever, name="wait")
    lines.sink(FileSink(arguments.output, "text"))
    return job


def closes_never(arguments: JobArguments) -> Job:
    """Every line to the output, whose writer waits without end when it is closed."""

    class Endless(FileSink):
        def open(self, context: SinkContext) -> SinkWriter:
            writer = super().open(context)

            def close() -> None:
                while True:
                    time.sleep(0.1)

            writer.close = close  # type: ignore[method-assign]
            return writer

    job = Job("closes-never")
    _lines(job, arguments).sink(Endless(arguments.output, "text"))
    return job


def printing(arguments: JobArguments) -> Job:
    """Every line to standard output."""
    job = Job("printing")
    _lines(job, arguments).sink(StdoutSink())
    return job


def shouting(arguments: JobArguments) -> Job:
    """Every line to the output, and to standard error."""

    def shout(line: str) -> str:
        print(line, file=sys.stderr)
        return line

    job = Job("shouting")
    lines = _lines(job, arguments).map(shout, name="shout")
    lines.sink(FileSink(arguments.output, "text"))
    return job
