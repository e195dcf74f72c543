"""Inputs that changed between starts, outputs that somebody touched: named, mended, exact."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counting import EXPECTED, POISON, WORDS, refuse_poison, source, start
from tests.support.pipelines import Outside, Within
from tidelog import Files, Job, JsonLines, Sink, SinkContext, Source, SplitReader, TextFiles
from tidelog.connectors.files.sink import FilesWriter
from tidelog.errors import (
    ConfigError,
    CorruptObjectError,
    ObjectNotFoundError,
    StorageError,
    TidelogError,
    UserFunctionError,
)
from tidelog.storage.memory import MemoryStore


class Slowly(Source):
    """Any source, with a pause before each read, so that checkpoints lie between."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    def discover(self) -> Any:
        return self._inner.discover()

    def open(self, split: str, position: Any) -> SplitReader:
        return SlowReader(self._inner.open(split, position))


class SlowReader(Within):
    def __init__(self, inner: SplitReader) -> None:
        super().__init__(inner)
        self.delay_s = 0.4
        self._reads = 0

    def read(self) -> list[Any] | None:
        self._reads += 1
        return super().read() if self._reads % 4 == 0 else []


class Inputs:
    """Two files of words, and a job that copies them."""

    def __init__(self, directory: Path, *, as_json: bool = False) -> None:
        self.directory = directory
        self.as_json = as_json
        self.store = MemoryStore()
        self.sink = Outside()
        directory.mkdir()
        self.left, self.right = directory / "left", directory / "right"
        self.write(self.left, [*WORDS, POISON])
        self.write(self.right, WORDS)

    def write(self, path: Path, words: list[str]) -> None:
        lines = [json.dumps({"word": word}) if self.as_json else word for word in words]
        path.write_text("".join(f"{line}\n" for line in lines))

    def start(self, check: Callable[[str], str] = str) -> None:
        files: Source
        if self.as_json:
            files = JsonLines(self.directory, chunk_bytes=100)
        else:
            files = TextFiles(self.directory, chunk_bytes=20)
        job = Job("copy")
        words = job.source(Slowly(files)).map(lambda r: r if isinstance(r, str) else r.word)
        words.map(check, name="check").sink(self.sink)
        start(job, self.store)

    def break_off(self) -> None:
        with pytest.raises(UserFunctionError):
            self.start(refuse_poison)
        assert self.sink.records, "there were checkpoints"

    def finish(self) -> None:
        self.start()
        assert Counter(self.sink.records) == EXPECTED


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    inputs = Inputs(tmp_path / "in")
    inputs.break_off()
    return inputs


def test_a_begun_file_that_vanished_is_missed_and_not_taken_for_read(inputs: Inputs) -> None:
    inputs.left.rename(inputs.directory.parent / "away")
    with pytest.raises(ObjectNotFoundError, match=str(inputs.left)) as failed:
        inputs.start()
    assert "put it back" in failed.value.action
    (inputs.directory.parent / "away").rename(inputs.left)
    inputs.finish()


@pytest.mark.parametrize("wrong", ['{"word": "w1"', "[1, 2]", "\x00"])
def test_a_malformed_line_is_named_by_its_place(wrong: str, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", as_json=True)
    inputs.break_off()
    whole = inputs.left.read_text()
    last = whole.rindex('{"word"')
    inputs.left.write_text(whole[:last] + wrong.ljust(len(whole) - last - 1) + "\n")
    with pytest.raises(CorruptObjectError, match=f"{inputs.left}, line at byte {last}") as failed:
        inputs.start()
    assert "correct the line" in failed.value.action
    inputs.left.write_text(whole)
    inputs.finish()


def copy(sink: Sink, store: MemoryStore, check: Callable[[str], str] = str) -> None:
    job = Job("copy")
    job.source(source()).map(check, name="check").sink(sink, parallelism=1)
    start(job, store)


def lines(directory: Path) -> Counter[str]:
    """What anyone who reads the part files sees."""
    return Counter(
        line for part in directory.glob("part-*") for line in part.read_text().splitlines()
    )


def test_an_output_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    store, in_the_way = MemoryStore(), tmp_path / "file"
    in_the_way.write_text("no directory")
    with pytest.raises(StorageError, match=str(in_the_way)):
        copy(Files(in_the_way / "out", "text"), store)
    in_the_way.unlink()
    copy(Files(in_the_way / "out", "text"), store)
    assert lines(in_the_way / "out") == EXPECTED


class Uncommitted(Files):
    """Fails between the checkpoint and its commit, as a crash there does."""

    def open(self, context: SinkContext) -> FilesWriter:
        writer = super().open(context)

        def commit(transaction: bytes) -> None:
            raise OSError("crashed")

        writer.commit = commit  # type: ignore[method-assign]
        return writer


def altered(part: Path) -> None:
    data = part.read_bytes()
    part.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def cut(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("harm", "error"),
    [(Path.unlink, ObjectNotFoundError), (altered, CorruptObjectError), (cut, CorruptObjectError)],
    ids=["deleted", "altered", "cut"],
)
def test_a_part_that_somebody_touched_before_its_commit_is_never_published(
    harm: Callable[[Path], None], error: type[TidelogError], tmp_path: Path
) -> None:
    store = MemoryStore()
    with pytest.raises(UserFunctionError, match="crashed"):
        copy(Uncommitted(tmp_path, "text"), store)
    (part,) = tmp_path.rglob("*.inprogress")
    written = part.read_bytes()
    harm(part)
    for _ in range(2):
        with pytest.raises(error, match=r"part-00000|inprogress"):
            copy(Files(tmp_path, "text"), store)
        assert lines(tmp_path) == Counter()
    part.write_bytes(written)
    copy(Files(tmp_path, "text"), store)
    assert lines(tmp_path) == EXPECTED


def test_a_foreign_file_under_a_parts_name_is_never_replaced(tmp_path: Path) -> None:
    copy(Files(tmp_path / "alike", "text"), MemoryStore())
    name = min(part.name for part in (tmp_path / "alike").glob("part-*"))
    store = MemoryStore()
    with pytest.raises(UserFunctionError, match="crashed"):
        copy(Uncommitted(tmp_path, "text"), store)
    foreign = tmp_path / name
    foreign.write_text("precious\n")
    with pytest.raises(ConfigError, match=name):
        copy(Files(tmp_path, "text"), store)
    assert foreign.read_text() == "precious\n"
    foreign.unlink()
    copy(Files(tmp_path, "text"), store)
    assert lines(tmp_path) == EXPECTED
