"""Sinks without transactions: records leave at once and are flushed before a checkpoint."""

import errno
import io
import os
from typing import Any

import pytest

from tests.support.pipelines import Portions, config, run
from tests.unit.connectors.sinks.job import context
from tidelog import Callback, ConfigError, Job, SinkWriter, Stdout, StorageError
from tidelog.ids import CheckpointId
from tidelog.storage.memory import MemoryStore


@pytest.mark.parametrize(
    ("sink", "printed"),
    [
        (Stdout(), "('tide', 1)\n('ebb', 2)\n"),
        (Stdout("json"), '["tide",1]\n["ebb",2]\n'),
        (Stdout("json", fields=("word", "n")), '{"word":"tide","n":1}\n{"word":"ebb","n":2}\n'),
        (Stdout(lambda record: record[0]), "tide\nebb\n"),
    ],
)
def test_stdout_prints_records_as_lines(
    sink: Stdout, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer: SinkWriter = sink.open(context())
    writer.write([("tide", 1), ("ebb", 2)])
    assert writer.pre_commit(CheckpointId(1)) is None
    assert capsys.readouterr().out == printed


def test_stdout_is_flushed_before_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BufferedWriter(raw)))
    writer = Stdout().open(context())
    writer.write(["line"])
    assert raw.getvalue() == b""
    writer.pre_commit(CheckpointId(1))
    assert raw.getvalue() == b"line\n"


def test_a_closed_pipe_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(StorageError, match=r"standard output; .*Broken pipe"):
        Stdout().open(context()).pre_commit(CheckpointId(1))


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
        job = Job("print")
        job.source(Portions({"all": lines})).sink(Stdout())
        run(job, store, config(parallelism=1))

    failures = 0
    while failures <= len(refused):
        try:
            start()
            break
        except StorageError as error:
            assert "standard output; found No space left" in str(error)
            failures += 1
    assert failures > 0
    assert set(lines) <= set(disk.written.decode().splitlines())


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="format"):
        Stdout("csv")  # type: ignore[arg-type]


def test_a_callback_sees_every_record_in_order_and_each_checkpoint() -> None:
    seen: list[object] = []
    writer: SinkWriter = Callback(seen.append, lambda: seen.append("flush")).open(context())
    writer.recover([])
    writer.write([1, 2])
    writer.write([3])
    assert writer.pre_commit(CheckpointId(1)) is None
    assert seen == [1, 2, 3, "flush"]


def test_a_callback_needs_no_flush() -> None:
    writer: SinkWriter = Callback(print).open(context())
    assert writer.pre_commit(CheckpointId(1)) is None


def test_exceptions_of_a_callback_pass_through() -> None:
    def fail(record: object) -> None:
        raise LookupError(record)

    with pytest.raises(LookupError, match="mine"):
        Callback(fail).open(context()).write(["mine"])
