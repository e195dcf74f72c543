"""A file that is written anew between two starts is an error, wherever the other text begins."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.unit.connectors.sources.reading import drain, stored
from tidelog import ParquetSource, TextFileSource
from tidelog.errors import StorageError

HEADER = b"a header of a kilobyte " * 60 + b"\n"


def lines(letter: bytes, count: int) -> bytes:
    return HEADER + b"".join(letter * 9 + b"%05d\n" % number for number in range(count))


def compressed(path: Path, text: bytes) -> None:
    data = gzip.compress(text, 0) if path.suffix == ".gz" else zstandard.compress(text, -100)
    path.write_bytes(data)


WRITERS: dict[str, Callable[[Path, bytes], Any]] = {
    "plain.txt": Path.write_bytes,
    "text.gz": compressed,
    "text.zst": compressed,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_longer_text_with_the_same_header_is_not_read_on_in_its_middle(
    name: str, tmp_path: Path
) -> None:
    path, write = tmp_path / name, WRITERS[name]
    write(path, lines(b"x", 1000))
    source = TextFileSource(path, chunk_bytes=4000)
    first = source.open(name, None)
    first.read()
    position = stored(first.position)
    first.close()
    write(path, lines(b"x", 1500))
    drain(source.open(name, position))  # one that has grown
    write(path, lines(b"y", 1500))
    with pytest.raises(StorageError, match=rf"{name}; .*written anew"):
        drain(source.open(name, position))


@pytest.mark.parametrize("name", ["text.gz", "text.zst"])
def test_a_file_that_was_read_to_its_end_and_replaced_by_one_of_its_size_is_an_error(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    compressed(path, lines(b"x", 1000))
    source, size = TextFileSource(path), path.stat().st_size
    first = source.open(name, None)
    drain(first)
    position = stored(first.position)
    assert drain(source.open(name, position)) == []
    compressed(path, lines(b"y", 1000))
    path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    assert path.stat().st_size == size
    with pytest.raises(StorageError, match=rf"{name}; .*written anew"):
        source.open(name, position)


def test_a_parquet_file_with_as_many_other_rows_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3]}), path)
    source = ParquetSource(path, batch_rows=1)
    first = source.open(path.name, None)
    first.read()
    position = stored(first.position)
    first.close()
    assert len(drain(source.open(path.name, position))) == 2
    pq.write_table(pa.table({"n": [4, 5, 6]}), path)
    with pytest.raises(StorageError, match=r"rows\.parquet; .*written anew"):
        source.open(path.name, position)
