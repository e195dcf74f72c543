"""The file sink: what readers of a directory see, whenever they look and whatever crashed."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.support.pipelines import Portions, config, run
from tests.unit.connectors.sinks.job import context
from tidelog import Effects, Files, Job, JobConfig, JobRunner, Row, TextFiles, open_store
from tidelog.connectors.files.sink import FilesWriter
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    ObjectNotFoundError,
    StorageError,
    StoreFullError,
    UserFunctionError,
)
from tidelog.ids import CheckpointId
from tidelog.storage.memory import MemoryStore

FIRST = CheckpointId(1)

Fail = Callable[[], object]


def shown(directory: Path) -> list[str]:
    """Lines in all files that readers see, in the order of their names."""
    return [
        line for path in sorted(directory.glob("part-*")) for line in path.read_text().splitlines()
    ]


def hidden(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / ".tidelog").glob("*"))


def pre_committed(writer: FilesWriter, checkpoint: int = 1, *records: Any) -> bytes:
    writer.write(records or ["a", "b"])
    transaction = writer.pre_commit(CheckpointId(checkpoint))
    assert transaction is not None
    return transaction


def test_committed_records_are_in_one_file_per_checkpoint(tmp_path: Path) -> None:
    writer = Files(tmp_path / "a" / "out", "text").open(context(subtask=3))
    for checkpoint in (7, 8):
        writer.commit(pre_committed(writer, checkpoint, checkpoint, "x"))
    assert sorted(path.name for path in (tmp_path / "a" / "out").iterdir()) == [
        ".tidelog",
        "part-00003-0000000007-0000.txt",
        "part-00003-0000000008-0000.txt",
    ]
    assert shown(tmp_path / "a" / "out") == ["7", "x", "8", "x"]


def test_uncommitted_records_are_hidden_from_a_source_too(tmp_path: Path) -> None:
    writer = Files(tmp_path, "text").open(context())
    writer.write(["open"])
    assert hidden(tmp_path) == ["1-a-0-0.inprogress"]
    pre_committed(writer)
    assert TextFiles(tmp_path).discover() == []


def test_an_empty_transaction_is_none_and_makes_no_file(tmp_path: Path) -> None:
    writer = Files(tmp_path / "out").open(context())
    writer.write([])
    assert writer.pre_commit(FIRST) is None
    writer.recover([])
    writer.close()
    assert not (tmp_path / "out").exists()


def test_a_file_is_cut_before_it_outgrows_the_limit(tmp_path: Path) -> None:
    writer = Files(tmp_path, "text", max_part_bytes=10).open(context())
    for record in ("aaaa", "bbbb", "c", "d" * 20, "e"):
        writer.write([record])
    transaction = writer.pre_commit(FIRST)
    assert transaction is not None
    writer.commit(transaction)
    assert [path.stat().st_size for path in sorted(tmp_path.glob("part-*"))] == [10, 2, 21, 2]
    assert shown(tmp_path) == ["aaaa", "bbbb", "c", "d" * 20, "e"]


def test_a_predecessor_may_commit_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_the_predecessor(pending: Path, final: Path) -> Path:
        rename(pending, final)
        return rename(pending, final)

    writer = Files(tmp_path, "text").open(context())
    transaction = pre_committed(writer)
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", after_the_predecessor)
    writer.commit(transaction)
    assert shown(tmp_path) == ["a", "b"]


def test_every_phase_syncs_what_it_wrote_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    writer = Files(tmp_path / "out", "text").open(context())
    writer.write(["a"])
    assert synced == [tmp_path, tmp_path / "out"]
    synced.clear()
    transaction = writer.pre_commit(FIRST)
    assert transaction is not None
    staging = tmp_path / "out" / ".tidelog"
    assert synced == [staging / "1-a-0-0.inprogress", staging]
    synced.clear()
    writer.commit(transaction)
    assert synced == [tmp_path / "out"]


def test_closing_removes_the_open_transaction_and_keeps_a_pre_committed_one(tmp_path: Path) -> None:
    writer = Files(tmp_path, "text").open(context())
    transaction = pre_committed(writer)
    writer.write(["open"])
    writer.close()
    writer.close()
    assert hidden(tmp_path) == ["1-a-0-0.inprogress"]
    Files(tmp_path, "text").open(context(2)).recover([transaction])
    assert shown(tmp_path) == ["a", "b"]


def test_a_lost_transaction_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    writer = Files(tmp_path, "text").open(context())
    transaction = pre_committed(writer)
    (tmp_path / ".tidelog" / "1-a-0-0.inprogress").unlink()
    fails: list[Fail] = [lambda: writer.commit(transaction), lambda: writer.recover([transaction])]
    for fail in fails:
        with pytest.raises(ObjectNotFoundError, match=f"{tmp_path}/part-00000-.*found neither"):
            fail()


def test_a_truncated_file_is_not_committed(tmp_path: Path) -> None:
    writer = Files(tmp_path, "text").open(context())
    transaction = pre_committed(writer)
    os.truncate(tmp_path / ".tidelog" / "1-a-0-0.inprogress", 3)
    with pytest.raises(CorruptObjectError, match=r"0-0\.inprogress; expected 4 .* found 3 bytes"):
        writer.commit(transaction)
    assert shown(tmp_path) == []


def test_recovery_commits_no_file_whose_bytes_changed(tmp_path: Path) -> None:
    transaction = pre_committed(Files(tmp_path, "text").open(context()))
    (tmp_path / ".tidelog" / "1-a-0-0.inprogress").write_text("a\nB\n")
    with pytest.raises(CorruptObjectError, match="expected 4 bytes with CRC32C"):
        Files(tmp_path, "text").open(context(2)).recover([transaction])
    assert shown(tmp_path) == []


def test_a_file_of_another_job_is_never_replaced(tmp_path: Path) -> None:
    final = tmp_path / "part-00000-0000000001-0000.txt"
    writer = Files(tmp_path, "text").open(context())
    transaction = pre_committed(writer)
    final.write_text("x\ny\n")
    writer.write(["more"])
    fails: list[Fail] = [lambda: writer.commit(transaction), lambda: writer.pre_commit(FIRST)]
    for fail in fails:
        with pytest.raises(ConfigError, match=f"{final}; expected a free name"):
            fail()
    assert shown(tmp_path) == ["x", "y"]


def test_a_full_disk_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = Files(tmp_path, "text").open(context())
    writer.write(["a"])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFullError, match=r"0-0\.inprogress; found No space left on device"):
        writer.pre_commit(FIRST)


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
    job = Job("copy")
    job.source(Portions({"all": [f"line {n}" for n in range(20)]})).sink(Files(tmp_path, "text"))
    run(job, MemoryStore(), config(parallelism=1))
    assert shown(tmp_path) == [f"line {n}" for n in range(20)]
    assert len(refused) == 2
    assert {path.stat().st_ino for path in tmp_path.glob("part-*")}.isdisjoint(refused)
    for file in held:
        file.close()


def test_a_file_whose_bytes_are_gone_after_a_failed_sync_is_not_taken_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Files(tmp_path, "text").open(context())
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


def test_a_disk_that_is_full_while_writing_is_reported_and_closing_works(tmp_path: Path) -> None:
    writer = Files(tmp_path, "text").open(context())
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
        ({}, ("tide", 1), '["tide",1]'),
        ({}, Row("tide", 1), '["tide",1]'),
        ({}, "tide", '"tide"'),
        ({"fields": ("word", "n")}, ("tide", 1), '{"word":"tide","n":1}'),
        ({"fields": ("word", "n")}, ("tide", Row(a=1)), '{"word":"tide","n":{"a":1}}'),
        ({"fields": ("word", "n")}, Row(x=1), '{"x":1}'),
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
    writer = Files(tmp_path, **settings).open(context())
    writer.commit(pre_committed(writer, 1, record, record))
    assert shown(tmp_path) == [line, line]


def test_tuples_with_names_for_their_values_may_lie_among_other_records(tmp_path: Path) -> None:
    writer = Files(tmp_path, fields=("word", "n")).open(context())
    writer.commit(pre_committed(writer, 1, ("tide", 1), Row(x=1), ("ebb", [2])))
    assert shown(tmp_path) == ['{"word":"tide","n":1}', '{"x":1}', '{"word":"ebb","n":[2]}']


@pytest.mark.parametrize(
    ("settings", "record", "found"),
    [
        ({}, object(), "type object"),
        ({"fields": ("word", "n")}, ("tide",), r"1 values for the 2 fields \('word', 'n'\)"),
        ({"format": "text"}, "\ud800", "surrogates"),
    ],
)
def test_a_record_without_such_a_form_is_an_error(
    settings: dict[str, Any], record: Any, found: str, tmp_path: Path
) -> None:
    with pytest.raises(UserFunctionError, match=found):
        Files(tmp_path, **settings).open(context()).write([record])


def test_an_exception_of_the_format_function_passes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        Files(tmp_path, lambda n: str(1 / n)).open(context()).write([0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "csv"}, "format; expected .*found 'csv'"),
        ({"format": "text", "fields": ("a",)}, "fields"),
        ({"max_part_bytes": 0}, "max_part_bytes"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Files("out", **settings)


@pytest.mark.parametrize(
    ("output", "store"),
    [("file", "store"), ("file/deep", "store"), ("out", "file"), ("out", "file/s")],
)
def test_a_file_in_place_of_a_directory_is_told(tmp_path: Path, output: str, store: str) -> None:
    (tmp_path / "in.txt").write_text("a\nb\n")
    (tmp_path / "file").write_text("in the way")
    job = Job("copy")
    lines = job.source(TextFiles(tmp_path / "in.txt"))
    lines.map(lambda line: {"line": line}).sink(Files(tmp_path / output))
    effects = Effects()
    opened = open_store(str(tmp_path / store), effects)
    runner = JobRunner(job, opened, JobConfig(parallelism=1), effects)
    with pytest.raises(StorageError) as refused:
        asyncio.run(runner.run())
    effects.offload.close()
    told = str(refused.value)
    assert str(tmp_path / "file") in told
    assert "found a file in one of them" in told and "choose another directory" in told
    assert (tmp_path / "file").read_text() == "in the way"
