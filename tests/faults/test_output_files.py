"""Outputs that somebody touched: named, mended, exact."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.counting import EXPECTED, source, start
from tests.support.output_files import output_lines
from tidelog import FileSink, Job, SinkContext
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


def copy(sink: FileSink, store: MemoryStore) -> None:
    job = Job("copy")
    job.source(source()).map(str).sink(sink, parallelism=1)
    start(job, store)


def lines(directory: Path) -> Counter[str]:
    """What anyone who reads the part files sees."""
    return Counter(output_lines(directory))


def test_an_output_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    store, in_the_way = MemoryStore(), tmp_path / "file"
    in_the_way.write_text("no directory")
    with pytest.raises(StorageError, match=str(in_the_way)):
        copy(FileSink(in_the_way / "out", "text"), store)
    in_the_way.unlink()
    copy(FileSink(in_the_way / "out", "text"), store)
    assert lines(in_the_way / "out") == EXPECTED


class Uncommitted(FileSink):
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
            copy(FileSink(tmp_path, "text"), store)
        assert lines(tmp_path) == Counter()
    part.write_bytes(written)
    copy(FileSink(tmp_path, "text"), store)
    assert lines(tmp_path) == EXPECTED


def test_a_foreign_file_under_a_parts_name_is_never_replaced(tmp_path: Path) -> None:
    copy(FileSink(tmp_path / "alike", "text"), MemoryStore())
    name = min(part.name for part in (tmp_path / "alike").glob("part-*"))
    store = MemoryStore()
    with pytest.raises(UserFunctionError, match="crashed"):
        copy(Uncommitted(tmp_path, "text"), store)
    foreign = tmp_path / name
    foreign.write_text("precious\n")
    with pytest.raises(ConfigError, match=name):
        copy(FileSink(tmp_path, "text"), store)
    assert foreign.read_text() == "precious\n"
    foreign.unlink()
    copy(FileSink(tmp_path, "text"), store)
    assert lines(tmp_path) == EXPECTED
