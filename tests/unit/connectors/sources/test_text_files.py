"""Text files: every line once, from every position, whatever the bytes and the chunk size."""

import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import VirtualClock
from tests.support.pipelines import Outside, acted_on
from tests.support.pressure import checkpoints, outside_as_of, pressed, slowly, under_pressure
from tests.unit.connectors.sources.reading import check_every_restart, drain, read_all, stored
from tidelog import (
    ConfigError,
    FileSink,
    Job,
    JobArguments,
    JobRunner,
    StorageError,
    TextFileSource,
)
from tidelog.errors import ObjectNotFoundError
from tidelog.storage.memory import MemoryStore

PIECES = [b"\n", b"\r\n", b"\r", b"a", b"\x0b", b"\xff", b"\xe2\x82"]
PIECES += map(str.encode, "\ufeff\u2028é🌊")
CONTENTS = st.binary(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=80).map(b"".join)


def lines_of(content: bytes) -> list[str]:
    """The definition: bytes between newlines, each decoded by itself."""
    *whole, last = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = [*(line.removesuffix(b"\r") for line in whole), *([last] if last else [])]
    return [line.decode("utf-8", "replace") for line in lines]


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


@given(CONTENTS, st.integers(1, 64))
def test_a_restart_from_every_position_gives_the_remaining_lines(
    content: bytes, chunk_bytes: int
) -> None:
    with TemporaryDirectory() as directory:
        path = written(Path(directory, "input"), content)
        source = TextFileSource(path, chunk_bytes=chunk_bytes)
        check_every_restart(source, "input", lines_of(content))


@given(st.lists(CONTENTS, max_size=6), st.integers(1, 64))
def test_a_followed_file_gives_every_line_once_when_its_newline_is_there(
    appended: list[bytes], chunk_bytes: int
) -> None:
    with TemporaryDirectory() as directory:
        path = written(Path(directory, "input"), b"")
        source = TextFileSource(path, follow=True, chunk_bytes=chunk_bytes)
        seen: list[str] = []
        position = None
        for content in appended:
            append(path, content)
            reader = source.open("input", position)
            while batch := reader.read():
                seen += batch
            reader.close()
            position = stored(reader.position)
            whole = path.read_bytes()
            assert seen == lines_of(whole[: whole.rfind(b"\n") + 1])


def test_a_followed_file_without_new_lines_is_looked_at_less_often(tmp_path: Path) -> None:
    path = written(tmp_path / "input", b"a\n")
    reader = TextFileSource(path, follow=True).open("input", None)
    waits = [(reader.read(), reader.delay_s)[1] for _ in range(12)]
    assert waits[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert waits[-4:] == [25.6, 51.2, 60.0, 60.0]
    append(path, b"b\n")
    assert (reader.read(), reader.delay_s) == (["b"], 0.1)
    reader.close()


def test_splits_are_the_visible_regular_files_sorted_by_path(tmp_path: Path) -> None:
    unfinished = (".hidden", ".tidelog/x.txt", "_temporary/0/task_1/part-0.txt")  # Spark's
    for name in ("b.txt", "a/z.txt", "a/b/c.txt", "a.txt", "c.csv", *unfinished):
        written(tmp_path / "input" / name, b"x\n")
    written(tmp_path / "elsewhere" / "far.txt", b"x\n")
    (tmp_path / "input" / "linked").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "input" / "pipe.txt")
    everything = ["a.txt", "a/b/c.txt", "a/z.txt", "b.txt", "c.csv"]
    assert TextFileSource(tmp_path / "input").discover() == everything
    for include, found in [
        ("*.csv", ["c.csv"]),
        ("*.txt", everything[:-1]),
        ("**/*.txt", everything[:-1]),
        ("b/*.txt", ["a/b/c.txt"]),
        ("**/b/*", ["a/b/c.txt"]),
    ]:
        assert TextFileSource(tmp_path / "input", include).discover() == found, (
            "of the ends of paths"
        )


def test_a_bounded_input_ends_at_the_size_when_a_start_opens_it(tmp_path: Path) -> None:
    path = written(tmp_path / "input", b"one\ntwo\n")
    source = TextFileSource(path)
    first = source.open("input", None)
    append(path, b"three\n")
    again = source.open("input", stored(first.position))
    assert drain(first) == ["one", "two"]
    assert drain(again) == ["one", "two", "three"]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000])
def test_the_line_limit_does_not_depend_on_chunks(
    follow: bool, chunk_bytes: int, tmp_path: Path
) -> None:
    path = written(tmp_path / "input", b"x" * 50 + b"\n" + b"y" * 51 + b"\n")
    source = TextFileSource(path, follow=follow, chunk_bytes=chunk_bytes, max_line_bytes=50)
    reader = source.open("input", None)
    assert reader.read() == ["x" * 50]
    with pytest.raises(ConfigError, match="line at byte 51"):
        reader.read()
    reader.close()


@pytest.mark.parametrize("follow", [False, True])
def test_a_truncated_file_is_an_error_with_both_sizes(follow: bool, tmp_path: Path) -> None:
    path = written(tmp_path / "input", b"one\ntwo\n")
    source = TextFileSource(path, follow=follow, chunk_bytes=4)
    reader = source.open("input", None)
    assert reader.read() == ["one"]
    os.truncate(path, 2)
    least = 4 if follow else 8
    with pytest.raises(StorageError, match=f"{path}; expected at least {least} .* found 2 "):
        reader.read()
    reader.close()
    for again in (source, TextFileSource(path)):  # nor has it ended for whoever does not follow it
        with pytest.raises(StorageError, match=f"{path}; expected at least 4 .* found 2 "):
            again.open("input", stored(reader.position))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("size", [8, 9, 5000])
def test_a_file_that_is_written_anew_is_an_error(follow: bool, size: int, tmp_path: Path) -> None:
    path = written(tmp_path / "input", b"one\ntwo\n" + b"x\n" * 2000)
    source = TextFileSource(path, follow=follow, chunk_bytes=4)
    reader = source.open("input", None)
    assert reader.read() == ["one"]
    path.write_bytes(b"new\n" + b"y\n" * size)  # in place: the file is the same one
    with pytest.raises(StorageError, match=f"{path}; .*(written anew|at least 4008 bytes)"):
        reader.read()
    reader.close()
    with pytest.raises(StorageError, match=f"{path}; .*written anew"):
        source.open("input", stored(reader.position))


def test_lines_that_are_no_utf_8_are_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "input", b"a\n\xff\n" + b"b\n" * 50 + b"\xff\xfe\nc\n")
    with caplog.at_level("WARNING", "tidelog"):
        read_all(TextFileSource(path, chunk_bytes=10))
    told = [record.getMessage() for record in caplog.records]
    assert [message.split(" so far, with bytes that are no UTF-8")[0] for message in told] == [
        f"input file {path}: 1 line",
        f"input file {path}: 2 lines",
    ]


def test_a_file_that_is_no_more_the_input_is_missed_and_a_way_to_leave_it_named(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        written(tmp_path / name, b"a\n")
    changed = TextFileSource(tmp_path / "two")  # it was "one", and the checkpoint says how far
    with pytest.raises(ObjectNotFoundError, match=r"one; .*found nothing.*give the source another"):
        changed.open("one", [0, 2])


def test_a_followed_file_must_stay_the_same_file(tmp_path: Path) -> None:
    path = written(tmp_path / "input", b"one\n")
    reader = TextFileSource(path, follow=True).open("input", None)
    path.rename(tmp_path / "input.1")
    written(path, b"two\n")
    with pytest.raises(StorageError, match=f"{path}; .*another one under its name"):
        reader.read()
    reader.close()


def test_a_name_that_no_checkpoint_could_hold_is_refused(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/bad\xff", os.O_CREAT))
    with pytest.raises(ConfigError, match=r"bad\\udcff.*byte b'\\xff'"):
        TextFileSource(tmp_path).discover()


def copying(directory: Path, sink: Outside, clock: VirtualClock, *, follow: bool) -> Job:
    job = Job("copy")
    lines = job.source(TextFileSource(directory, follow=follow, chunk_bytes=8))
    slowly(lines.rebalance(), clock, 0.2).sink(sink)
    return job


def test_lines_behind_the_end_that_an_earlier_run_saw_are_read(tmp_path: Path) -> None:
    append(tmp_path / "short", b"s0\n")
    append(tmp_path / "long", b"".join(b"l%d\n" % n for n in range(60)))
    config = pressed(parallelism=1, channel_buffers=1)
    sink, store = under_pressure(partial(copying, tmp_path, follow=False), config)
    # As if it had died in the middle: the short file was read to its end, the long one was not.
    taken = [c for c in checkpoints(store) if "s0" in outside_as_of(sink, c).records]
    middle = taken[0]
    assert len(outside_as_of(sink, middle).records) < 40
    append(tmp_path / "short", b"s1\ns2\n")
    append(tmp_path / "new", b"n0\n")
    again, clock = outside_as_of(sink, middle), VirtualClock()
    job = copying(tmp_path, again, clock, follow=True)
    stop, slot = JobRunner.stop, middle.slot
    acted_on(job, store, stop, at=60, settings=config, clock=clock, restore_checkpoint=slot)
    expected = ["n0", "s0", "s1", "s2", *(f"l{n}" for n in range(60))]
    assert sorted(again.records) == sorted(expected)


def test_a_source_that_finished_before_the_rest_says_that_it_reads_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("done", "going-on"):
        written(tmp_path / name / "file", f"{name}\n".encode())

    def job(sink: Outside, *, follow: bool) -> Job:
        job = Job("two")
        for name, follows in (("done", follow), ("going-on", True)):
            lines = job.source(TextFileSource(tmp_path / name, follow=follows), name=name)
            lines.sink(sink, name=f"{name}-sink")
        return job

    store, sink, config = MemoryStore("memory://finished"), Outside(), pressed(parallelism=1)
    acted_on(job(sink, follow=False), store, JobRunner.stop, at=60, settings=config)
    append(tmp_path / "done" / "file", b"too late\n")
    assert "finished in an earlier run" not in caplog.text
    acted_on(job(sink, follow=True), store, JobRunner.stop, at=60, settings=config)
    assert sorted(sink.records) == ["done", "going-on"]
    assert "source 'done': 1 of its 1 subtask finished in an earlier run" in caplog.text
    assert "source 'going-on':" not in caplog.text


@pytest.mark.parametrize("include", ["/in/*.txt", "in/**/c.txt", "**/", ""])
def test_a_pattern_that_could_match_nothing_is_refused(tmp_path: Path, include: str) -> None:
    with pytest.raises(ConfigError, match="include"):
        TextFileSource(tmp_path, include)


def test_files_none_of_which_matches_are_an_error_unless_more_may_come(tmp_path: Path) -> None:
    assert TextFileSource(tmp_path, "*.json").discover() == []
    written(tmp_path / "in" / "a.txt", b"x")
    with pytest.raises(ConfigError, match=r"'\*\.json'"):
        TextFileSource(tmp_path, "*.json").discover()
    assert TextFileSource(tmp_path, "*.json", follow=True).discover() == []


@pytest.mark.parametrize("path", [None, ""])
def test_no_path_is_refused_with_the_option_that_gives_one(path: Any) -> None:
    with pytest.raises(ConfigError, match=f"--input PATH` gives; found {path!r}"):
        TextFileSource(path)
    with pytest.raises(ConfigError, match=f"--output PATH` gives; found {path!r}"):
        FileSink(path)
    with pytest.raises(ConfigError, match="pass --input PATH"):
        JobArguments(path).required_input()
