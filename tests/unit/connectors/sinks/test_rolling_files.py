"""The file sink's files grow and are completed: few of them, and exact whatever crashes."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.clock import VirtualClock
from tests.support.output_files import output_lines
from tests.unit.connectors.sinks.job import context, pre_committed
from tidelog import FileSink, TextFileSource
from tidelog.connectors.files.sink import FilesWriter
from tidelog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError, StoreFullError
from tidelog.ids import CheckpointId

GROWING = "_part-00000-0000000001-0000.txt.1.inprogress"
COMPLETE = "part-00000-0000000001-0000.txt"


def visible(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*part-*"))


def opened(
    directory: Path,
    generation: int = 1,
    *,
    retained: Sequence[bytes] = (),
    clock: VirtualClock | None = None,
    **settings: Any,
) -> FilesWriter:
    known = replace(
        context(generation),
        retained_transactions=tuple(retained),
        own_transactions=tuple(retained),
        clock=clock or VirtualClock(auto=False),
    )
    return FileSink(directory, "text", **settings).open(known)


def committed(writer: FilesWriter, checkpoint: int, *records: str) -> bytes:
    transaction = pre_committed(writer, checkpoint, *records)
    writer.commit(transaction)
    return transaction


def checkpoints(writer: FilesWriter, clock: VirtualClock, count: int, pause_s: float) -> None:
    for checkpoint in range(1, count + 1):
        committed(writer, checkpoint, f"line {checkpoint}")
        clock.spend(pause_s)


def test_a_day_of_checkpoints_a_second_apart_makes_one_file_for_five_minutes(
    tmp_path: Path,
) -> None:
    clock = VirtualClock(auto=False)
    writer = opened(tmp_path, clock=clock)
    checkpoints(writer, clock, 1800, 1.0)
    writer.close()
    assert len(list(tmp_path.glob("part-*"))) == 6
    assert output_lines(tmp_path) == [f"line {n}" for n in range(1, 1801)]


def test_a_file_is_complete_before_it_outgrows_roll_bytes(tmp_path: Path) -> None:
    writer = opened(tmp_path, roll_bytes=20)
    for checkpoint, text in enumerate(("a" * 9, "b" * 9, "c" * 9, "d" * 30, "e"), 1):
        committed(writer, checkpoint, text)
    writer.close()
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("part-*"))]
    assert sizes == [20, 10, 31, 2]


def test_without_an_age_each_checkpoint_has_a_file_of_its_own(tmp_path: Path) -> None:
    writer = opened(tmp_path, roll_every=0)
    for checkpoint in (7, 8):
        committed(writer, checkpoint, "x")
    assert visible(tmp_path) == [f"part-00000-000000000{n}-0000.txt" for n in (7, 8)]


def test_readers_see_each_commit_at_once_in_a_file_that_is_visibly_in_progress(
    tmp_path: Path,
) -> None:
    writer = opened(tmp_path)
    for checkpoint, text in enumerate("abc", 1):
        committed(writer, checkpoint, text)
        assert visible(tmp_path) == [GROWING]
        assert output_lines(tmp_path) == list("abc")[:checkpoint]
    assert TextFileSource(tmp_path).discover() == [], (
        "a job that reads them takes complete files only"
    )
    writer.close()
    assert visible(tmp_path) == TextFileSource(tmp_path).discover() == [COMPLETE]


def test_a_file_gets_its_final_name_in_time_although_no_record_follows(tmp_path: Path) -> None:
    clock = VirtualClock(auto=False)
    writer = opened(tmp_path, clock=clock, roll_every=60)
    committed(writer, 1, "a")
    clock.spend(61)
    assert writer.pre_commit(CheckpointId(2)) is None
    assert visible(tmp_path) == [COMPLETE]


def test_a_file_waits_for_its_last_commit_before_it_gets_its_final_name(tmp_path: Path) -> None:
    clock = VirtualClock(auto=False)
    writer = opened(tmp_path, clock=clock, roll_every=60)
    committed(writer, 1, "a")
    second = pre_committed(writer, 2, "b")
    clock.spend(61)
    third = pre_committed(writer, 3, "c")
    assert visible(tmp_path) == [GROWING]
    writer.commit(second)
    assert visible(tmp_path) == [COMPLETE]
    writer.commit(third)
    assert output_lines(tmp_path) == ["a", "b", "c"]
    assert (tmp_path / COMPLETE).read_text() == "a\nb\n"


@pytest.mark.parametrize("written", [0, 1, 2, 3, 4])
def test_an_append_that_a_crash_cut_anywhere_is_made_again_to_the_same_bytes(
    written: int, tmp_path: Path
) -> None:
    writer = opened(tmp_path)
    committed(writer, 1, "a")
    second = pre_committed(writer, 2, "b", "c")
    with (tmp_path / GROWING).open("ab") as file:
        file.write(b"b\nc\n"[:written])
    opened(tmp_path, 2, retained=[second]).recover([second])
    assert (visible(tmp_path), output_lines(tmp_path)) == ([COMPLETE], ["a", "b", "c"])
    assert list((tmp_path / ".tidelog").glob("*.inprogress")) == []


def test_starts_from_either_of_two_checkpoints_lose_nothing_and_show_no_half_of_a_line(
    tmp_path: Path,
) -> None:
    writer = opened(tmp_path)
    committed(writer, 1, "a")
    second = pre_committed(writer, 2, "b", "c")
    opened(tmp_path, 2, retained=[second]).recover([])
    assert (visible(tmp_path), output_lines(tmp_path)) == ([COMPLETE], ["a"])
    opened(tmp_path, 3, retained=[second]).recover([second])
    assert output_lines(tmp_path) == ["a", "b", "c"]
    assert (tmp_path / COMPLETE).read_text() == "a\n", "a complete file never changes"


def test_an_older_start_finishes_what_a_retained_checkpoint_has_begun_to_append(
    tmp_path: Path,
) -> None:
    writer = opened(tmp_path)
    committed(writer, 1, "a")
    second = pre_committed(writer, 2, "b", "c")
    with (tmp_path / GROWING).open("ab") as file:
        file.write(b"b\nc")
    opened(tmp_path, 2, retained=[second]).recover([])
    assert (tmp_path / COMPLETE).read_text() == "a\nb\nc\n"
    opened(tmp_path, 3, retained=[second]).recover([second])
    assert output_lines(tmp_path) == ["a", "b", "c"]


def test_half_a_line_of_a_checkpoint_that_is_no_more_is_in_no_complete_file(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    committed(writer, 1, "a")
    pre_committed(writer, 2, "b" * 3_000_000)
    with (tmp_path / GROWING).open("ab") as file:
        file.write(b"b" * 2_500_000)
    opened(tmp_path, 2).recover([])
    assert (visible(tmp_path), output_lines(tmp_path)) == ([COMPLETE], ["a"])


def test_a_growing_file_that_lost_its_beginning_is_an_error_that_names_it(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    committed(writer, 1, "a")
    second = pre_committed(writer, 2, "b")
    (tmp_path / GROWING).write_bytes(b"")
    with pytest.raises(CorruptObjectError, match="expected 2 bytes or more; found 0 bytes"):
        opened(tmp_path, 2).recover([second])
    (tmp_path / GROWING).unlink()
    with pytest.raises(ObjectNotFoundError, match=r"inprogress; expected its first 2 bytes"):
        opened(tmp_path, 2).recover([second])


def test_a_foreign_file_under_a_growing_files_name_is_never_replaced(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    first = pre_committed(writer, 1, "a")
    (tmp_path / GROWING).write_text("precious\n")
    with pytest.raises(ConfigError, match="expected a free name"):
        writer.commit(first)
    assert (tmp_path / GROWING).read_text() == "precious\n"


def test_a_start_leaves_the_growing_file_of_a_newer_one_alone(tmp_path: Path) -> None:
    late = opened(tmp_path, 2)
    newest = opened(tmp_path, 3)
    committed(newest, 1, "a")
    (tmp_path / ".tidelog" / ".writer").unlink()  # as the late one looked before it was there
    late.recover([])
    committed(newest, 2, "b")
    newest.close()
    assert output_lines(tmp_path) == ["a", "b"]


def test_a_disk_without_room_for_what_a_commit_appends_fails_the_checkpoint_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(tmp_path)
    committed(writer, 1, "a")
    writer.write(["b"])
    with monkeypatch.context() as full:
        full.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=1))
        with pytest.raises(StoreFullError):
            writer.pre_commit(CheckpointId(2))
    committed(writer, 3, "c")
    assert output_lines(tmp_path) == ["a", "b", "c"]
