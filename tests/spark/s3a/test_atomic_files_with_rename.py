"""On a file system with an atomic rename Spark's own way stays: a temporary file, then a rename."""

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.spark.s3a.hadoop import FILE_EXISTS, FILE_NOT_FOUND, Files, error_of


@pytest.fixture
def files(jvm: Any, tmp_path: Path) -> Files:
    """Files of a query that has the plug-in's manager configured."""
    manager = "spark.sql.streaming.checkpointFileManagerClass"
    files = Files.open(jvm, f"file:{tmp_path}", {manager: "tidelog.spark.WouldOpenItselfForEver"})
    files.java.manager().mkdirs(files.path("commits"))
    return files


def test_a_file_appears_at_close_and_is_all_there_is(files: Files, tmp_path: Path) -> None:
    stream = files.create("commits/0", b"content")
    assert not (tmp_path / "commits" / "0").exists()

    stream.close()

    assert (tmp_path / "commits" / "0").read_bytes() == b"content"
    assert files.names("commits") == ["0"]


def test_nothing_is_left_after_cancel(files: Files) -> None:
    files.create("commits/0", b"content").cancel()

    assert files.names("commits") == []


def test_an_existing_file_stays_unless_it_may_be_replaced(files: Files) -> None:
    files.write("commits/0", b"first")
    with pytest.raises(Py4JJavaError) as refused:
        files.write("commits/0", b"second")
    assert error_of(refused.value) == FILE_EXISTS
    assert files.read("commits/0") == b"first"

    files.write("commits/0", b"third", overwrite=True)

    assert files.read("commits/0") == b"third"


def test_a_part_of_a_file_is_read_or_it_is_an_error(files: Files) -> None:
    files.write("commits/0", b"0123456789")

    assert files.read("commits/0", 3, 4) == b"3456"
    with pytest.raises(Py4JJavaError) as beyond:
        files.read("commits/0", 8, 4)
    assert error_of(beyond.value) == "java.io.EOFException"


@pytest.mark.parametrize("part", [(), (0, 4)])
def test_a_missing_file_is_not_found(files: Files, part: tuple[int, ...]) -> None:
    with pytest.raises(Py4JJavaError) as missing:
        files.read("commits/0", *part)

    assert error_of(missing.value) == FILE_NOT_FOUND
