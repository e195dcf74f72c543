"""The file sink: what readers of a directory see, whenever they look and whatever crashed."""

import errno
import math
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pytest

from tests.support.output_files import output_lines
from tests.support.pipelines import Portions, config, run
from tests.unit.connectors.sinks import job
from tests.unit.connectors.sinks.job import context, copying
from tidelog import FileSink, Job, JobRunner, Row, SqliteSink, TextFileSource
from tidelog.effects import Effects
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    ObjectNotFoundError,
    StorageError,
    StoreFullError,
    UserFunctionError,
)
from tidelog.ids import CheckpointId
from tidelog.storage.local import LocalStore
from tidelog.storage.memory import MemoryStore

FIRST = CheckpointId(1)


class Named(NamedTuple):
    word: str
    n: int


def shown(directory: Path) -> list[str]:
    """Lines in all files that readers see, in the order of their names."""
    return output_lines(directory)


def hidden(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / ".tidelog").glob("*.inprogress"))


pre_committed = partial(job.pre_committed, usual=["a", "b"])


def test_a_file_has_the_name_of_its_first_checkpoint(tmp_path: Path) -> None:
    writer = FileSink(tmp_path / "a" / "out", "text").open(context(subtask=3))
    for checkpoint in (7, 8):
        writer.commit(pre_committed(writer, checkpoint, checkpoint, "x"))
    writer.close()
    names = [path.name for path in (tmp_path / "a" / "out").iterdir()]
    assert sorted(names) == [".tidelog", "part-00003-0000000007-0000.txt"]
    assert shown(tmp_path / "a" / "out") == ["7", "x", "8", "x"]


def test_uncommitted_records_are_hidden_from_a_source_too(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, "text").open(context())
    writer.write(["open"])
    assert hidden(tmp_path) == ["1-a-0-0.inprogress"]
    pre_committed(writer)
    assert TextFileSource(tmp_path).discover() == []


def test_a_file_is_cut_before_it_outgrows_the_limit(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, "text", roll_bytes=10).open(context())
    for record in ("aaaa", "bbbb", "c", "d" * 20, "e"):
        writer.write([record])
    transaction = writer.pre_commit(FIRST)
    assert transaction is not None
    writer.commit(transaction)
    writer.close()
    assert [path.stat().st_size for path in sorted(tmp_path.glob("part-*"))] == [10, 2, 21, 2]
    assert shown(tmp_path) == ["aaaa", "bbbb", "c", "d" * 20, "e"]


def test_every_phase_syncs_what_it_wrote_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    writer = FileSink(tmp_path / "out", "text").open(context())
    writer.write(["a"])
    assert synced == [tmp_path, tmp_path / "out"]
    synced.clear()
    transaction = writer.pre_commit(FIRST)
    assert transaction is not None
    staging = tmp_path / "out" / ".tidelog"
    assert synced == [staging / "1-a-0-0.inprogress", staging]
    synced.clear()
    writer.commit(transaction)
    assert synced == [tmp_path / "out", staging]


def test_closing_removes_the_open_transaction_and_keeps_a_pre_committed_one(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, "text").open(context())
    transaction = pre_committed(writer)
    writer.write(["open"])
    writer.close()
    writer.close()
    assert hidden(tmp_path) == ["1-a-0-0.inprogress"]
    FileSink(tmp_path, "text").open(context(2)).recover([transaction])
    assert shown(tmp_path) == ["a", "b"]


def test_a_file_whose_sync_failed_is_written_again_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports a page that it could not write once, and takes it for written then."""
    refused: list[int] = []
    held: list[BinaryIO] = []
    sync = os.fsync

    def fails_twice(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if name.endswith(".inprogress") and len(refused) < 2:
            refused.append(os.stat(descriptor).st_ino)
            # Held open, so that no other file gets its number.
            held.append(os.fdopen(os.dup(descriptor), "rb"))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fails_twice)
    lines = [f"line {n}" for n in range(20)]
    run(copying(lines, FileSink(tmp_path, "text")), MemoryStore(), config(parallelism=1))
    assert shown(tmp_path) == lines
    assert len(refused) == 2
    assert {path.stat().st_ino for path in tmp_path.glob("part-*")}.isdisjoint(refused)
    for file in held:
        file.close()


def test_a_disk_that_is_full_while_writing_is_reported_and_closing_works(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, "text").open(context())
    writer.write(["a"])
    os.dup2(os.open("/dev/full", os.O_WRONLY), writer._parts[0]._file.fileno())
    with pytest.raises(StoreFullError):
        writer.write(["b" * (2 << 20)])
    writer.close()
    assert hidden(tmp_path) == []


@pytest.mark.parametrize(
    ("settings", "record", "line"),
    [
        ({}, Row(word="tide", n=1), '{"word":"tide","n":1}'),
        ({}, Row(a=[Row(b=1)], c={"d": Row(e=2)}), '{"a":[{"b":1}],"c":{"d":{"e":2}}}'),
        ({}, {"word": "tide"}, '{"word":"tide"}'),
        ({}, Row(), "{}"),
        ({}, Row(a=Row(), b=[Row()]), '{"a":{},"b":[{}]}'),
        ({}, [0.5, math.nan, math.inf], "[0.5,null,null]"),
        ({}, ("tide", 1), '["tide",1]'),
        ({}, Row("tide", 1), '["tide",1]'),
        ({}, "tide", '"tide"'),
        ({"fields": ("word", "n")}, ("tide", 1), '{"word":"tide","n":1}'),
        ({"fields": ("word", "n")}, ("tide", Row(a=1)), '{"word":"tide","n":{"a":1}}'),
        ({"fields": ("word", "n")}, Row(x=1), '{"x":1}'),
        ({"fields": ("word", "n")}, Row(), "{}"),
        ({"fields": ("word", "n")}, Row("tide", 1), '{"word":"tide","n":1}'),
        ({"fields": ("word", "n")}, Named("tide", 1), '{"word":"tide","n":1}'),
        ({"fields": ("class", "a b")}, (None, 0.5), '{"class":null,"a b":0.5}'),
        ({"fields": ('"', "n")}, ("tide", 1), '{"\\"":"tide","n":1}'),
        ({"fields": ("n", "n")}, (1, 2), '{"n":2}'),
        ({"format": "text"}, ("tide", 1), "('tide', 1)"),
        ({"format": "text"}, "Flut und Ebbe \u2693", "Flut und Ebbe \u2693"),
        ({"format": lambda r: ";".join(map(str, r))}, ("tide", 1), "tide;1"),
    ],
)
def test_records_become_lines(
    settings: dict[str, Any], record: Any, line: str, tmp_path: Path
) -> None:
    writer = FileSink(tmp_path, **settings).open(context())
    writer.commit(pre_committed(writer, 1, record, record))
    assert shown(tmp_path) == [line, line]


@pytest.mark.parametrize(
    ("settings", "record", "found"),
    [
        ({}, object(), "type object"),
        ({"fields": ("word", "n")}, ("tide",), "2 values, for .*'n'.*; found 1 value"),
        ({"format": "text"}, "\ud800", "surrogates"),
    ],
)
def test_a_record_without_such_a_form_is_an_error(
    settings: dict[str, Any], record: Any, found: str, tmp_path: Path
) -> None:
    with pytest.raises(UserFunctionError, match=found):
        FileSink(tmp_path, **settings).open(context()).write([record])


def test_a_file_whose_bytes_are_gone_after_a_failed_sync_is_not_taken_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = FileSink(tmp_path, "text").open(context())
    writer.write(["a", "b"])
    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", lambda fd: os.close(-1))
        with pytest.raises(StorageError):
            writer.pre_commit(FIRST)
    (tmp_path / ".tidelog" / "1-a-0-0.inprogress").write_bytes(b"a\n\0\0")
    for _ in range(2):
        with pytest.raises(CorruptObjectError, match=r"1-a-0-0\.inprogress; expected 4 bytes"):
            writer.pre_commit(FIRST)
    assert hidden(tmp_path) == ["1-a-0-0.inprogress"]


def test_no_checkpoint_names_a_file_that_somebody_has_removed(tmp_path: Path) -> None:
    writer = FileSink(tmp_path, roll_bytes=1).open(context())
    writer.write(["a"])
    shutil.rmtree(tmp_path / ".tidelog")
    writer.write(["b"])
    with pytest.raises(
        ObjectNotFoundError, match=r"1-a-0-0\.inprogress; expected what was written"
    ):
        writer.pre_commit(FIRST)


def test_two_sinks_of_a_job_have_directories_of_their_own(tmp_path: Path) -> None:
    stream = Job("twice").source(Portions({}))
    stream.sink(FileSink(tmp_path), name="first")
    with pytest.raises(ConfigError, match=r"of sink 'second'; .* found that of sink 'first'"):
        stream.sink(FileSink(tmp_path / "."), name="second")


def test_no_source_of_a_job_reads_what_the_job_writes(tmp_path: Path) -> None:
    def feeding(include: str, output: str) -> None:
        Job("feedback").source(TextFileSource(tmp_path, include)).sink(FileSink(tmp_path / output))

    (tmp_path / "link").symlink_to(tmp_path.parent)
    for include, output in (("*.txt", "out"), ("in/*", "out"), ("*", ".out"), ("*", "../out")):
        feeding(include, output)
    feeding("*", "link/out")
    for include, output in (("*", "out"), ("*.jsonl", "."), ("out/*", "out")):
        with pytest.raises(
            ConfigError, match=r"place that source 'source' does not read; found .* p"
        ):
            feeding(include, output)
    with pytest.raises(ConfigError, match=r"does not read; found that .*/n\.db there"):
        numbers = SqliteSink(tmp_path / "n.db", "numbers", {"n": "integer"})
        Job("feedback").source(TextFileSource(tmp_path)).sink(numbers)
    late = Job("late")
    late.source(Portions({})).sink(FileSink(tmp_path / "out"))
    with pytest.raises(ConfigError, match="does not read"):
        late.source(TextFileSource(tmp_path))


def test_no_source_of_a_job_reads_its_store(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "in" / "store", Effects())
    job = copying([], FileSink(tmp_path / "out"))
    job.source(TextFileSource(tmp_path / "in")).sink(FileSink(tmp_path / "copies"))
    with pytest.raises(ConfigError, match=r"store file://.* place that source 'source-2' does "):
        JobRunner(job, store)
