"""Sinks without transactions: records leave at once and are flushed before a checkpoint."""

import errno
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.output_files import output_lines
from tests.support.pipelines import Portions, config, run
from tests.unit.connectors.sinks.job import context, copying
from tidelog import FileSink, ForeachSink, Job, SinkWriter, StdoutSink
from tidelog.errors import ConfigError, StorageError, TidelogError
from tidelog.ids import CheckpointId
from tidelog.storage.memory import MemoryStore


@pytest.mark.parametrize(
    ("sink", "printed"),
    [
        (StdoutSink(), "('tide', 1)\n('ebb', 2)\n"),
        (StdoutSink("json"), '["tide",1]\n["ebb",2]\n'),
        (StdoutSink("json", fields=("word", "n")), '{"word":"tide","n":1}\n{"word":"ebb","n":2}\n'),
        (StdoutSink(lambda record: record[0]), "tide\nebb\n"),
    ],
)
def test_stdout_prints_records_as_lines(
    sink: StdoutSink, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer: SinkWriter = sink.open(context())
    writer.write([("tide", 1), ("ebb", 2)])
    assert writer.pre_commit(CheckpointId(1)) is None
    assert capsys.readouterr().out == printed


class Full(io.RawIOBase):
    """A disk that is full for a while, and what got on it."""

    def __init__(self, refused: range) -> None:
        self.written = b""
        self._refused = refused
        self._writes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._writes += 1
        if self._writes in self._refused:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.written += bytes(data)
        return len(data)


@pytest.mark.parametrize("refused", [range(1, 2), range(2, 3), range(3, 6), range(6, 9)], ids=str)
def test_no_line_is_missing_after_a_flush_that_failed(
    refused: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream drops lines when it cannot pass them on: only a restart prints them again."""
    disk, store = Full(refused), MemoryStore()
    lines = [f"{n:04d}" * 200 for n in range(60)]

    def start() -> None:
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BufferedWriter(disk, 1000)))
        run(copying(lines, StdoutSink()), store, config(parallelism=1))

    failures = 0
    while failures <= len(refused):
        try:
            start()
            break
        except StorageError as error:
            assert "standard output; expected room for it; found No space left" in str(error)
            failures += 1
    assert failures > 0
    assert set(lines) <= set(disk.written.decode().splitlines())


def test_an_encoding_that_lacks_a_character_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    with pytest.raises(ConfigError, match=r"standard output; .*'ascii'.*PYTHONIOENCODING=utf-8"):
        StdoutSink().open(context()).write(["gr\u00fcn"])


def test_a_reader_that_has_gone_is_named_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr("sys.stdout", os.fdopen(writing, "w"))
    writer = StdoutSink().open(context())
    with pytest.raises(StorageError, match="a reader until the job ends; found that it has gone"):
        writer.write(["line"])
        assert writer.full()
        writer.make_room()
    with suppress(BrokenPipeError):
        sys.stdout.close()


def test_a_callback_sees_every_record_in_order_and_each_checkpoint() -> None:
    seen: list[object] = []
    writer: SinkWriter = ForeachSink(seen.append, lambda: seen.append("flush")).open(context())
    writer.recover([])
    writer.write([1, 2])
    writer.write([3])
    assert writer.pre_commit(CheckpointId(1)) is None
    assert seen == [1, 2, 3, "flush"]


def test_an_async_function_that_nobody_would_await_is_refused() -> None:
    async def call(record: Any = None) -> None: ...

    with pytest.raises(
        ConfigError, match="function of a ForeachSink; expected a function that is not"
    ):
        ForeachSink(call)
    with pytest.raises(ConfigError, match="flush of a ForeachSink"):
        ForeachSink(print, flush=call)


def test_calls_come_at_least_once_and_the_files_beside_them_exactly_once(tmp_path: Path) -> None:
    store, called = MemoryStore(), list[int]()

    def job(call: Callable[[int], object]) -> Job:
        job = Job("payments")
        numbers = job.source(Portions({"all": list(range(300))}))
        numbers.sink(ForeachSink(call), name="call")
        numbers.sink(FileSink(tmp_path), name="files")
        return job

    def fail_in_the_middle(number: int) -> None:
        if number == 150:
            raise ConnectionError("the service is away")
        called.append(number)

    for seed in range(2):
        with pytest.raises(TidelogError, match="the service is away"):
            run(job(fail_in_the_middle), store, seed=seed)
    run(job(called.append), store, seed=2)
    assert set(called) == set(range(300))
    lines = list(map(int, output_lines(tmp_path)))
    assert sorted(lines) == list(range(300))
