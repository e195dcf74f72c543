"""Compressed text: what the same text gives uncompressed, from every position."""

import gzip
import os
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.support.depth import more_in_depth
from tests.unit.connectors.sources.reading import check_every_restart, drain, read_all, stored
from tests.unit.connectors.sources.test_text_files import CONTENTS, lines_of
from tidelog import ConfigError, CorruptObjectError, StorageError, TextFileSource, TidelogError

SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"xyz"


def zstd(text: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(text)


def streamed_zstd(text: bytes) -> bytes:
    """A frame that does not say how long it is, of many blocks."""
    compressor = zstandard.ZstdCompressor(write_checksum=False).compressobj()
    size = max(9, len(text) // 99)
    blocks = [
        compressor.compress(text[at : at + size])
        + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for at in range(0, len(text), size)
    ]
    return b"".join(blocks) + compressor.flush()


KINDS: Mapping[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": (".gz", gzip.compress),
    "zstd": (".zst", zstd),
    "streamed zstd": (".ZST", streamed_zstd),
}


def compressed(kind: str, path: Path, *members: bytes) -> Path:
    suffix, compress = KINDS[kind]
    whole = path.with_name(path.name + suffix)
    whole.write_bytes(b"".join(map(compress, members)))
    return whole


@given(st.sampled_from(list(KINDS)), st.lists(CONTENTS, min_size=1, max_size=5), st.integers(1, 64))
def test_a_restart_from_every_position_gives_the_remaining_lines(
    kind: str, members: list[bytes], chunk_bytes: int
) -> None:
    with TemporaryDirectory() as directory:
        path = compressed(kind, Path(directory, "input"), *members)
        source = TextFileSource(path, chunk_bytes=chunk_bytes)
        check_every_restart(source, path.name, lines_of(b"".join(members)))


def test_what_other_programs_put_between_members_is_passed_over(tmp_path: Path) -> None:
    padded = tmp_path / "padded.gz"
    padded.write_bytes(
        gzip.compress(b"a\n") + bytes(200_000) + gzip.compress(b"b\n") + bytes(70_000)
    )
    noted = tmp_path / "noted.zst"
    noted.write_bytes(SKIPPABLE + zstd(b"c\n") + SKIPPABLE + zstd(b"d\n") + SKIPPABLE)
    check_every_restart(TextFileSource(padded, chunk_bytes=1), "padded.gz", ["a", "b"])
    check_every_restart(TextFileSource(noted, chunk_bytes=1), "noted.zst", ["c", "d"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_not_complete_is_an_error_and_goes_on_when_it_is(
    kind: str, tmp_path: Path
) -> None:
    lines = [f"{n}" for n in range(8)]
    path = compressed(kind, tmp_path / "input", b"0\n1\n", b"2\n3\n4\n5\n6\n7\n")
    whole, boundary = path.read_bytes(), len(KINDS[kind][1](b"0\n1\n"))
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        source = TextFileSource(path, chunk_bytes=5, follow=bool(size % 2))
        reader = source.open(path.name, None)
        seen: list[str] = []
        if size == boundary:  # a whole member is a whole file
            assert drain(reader) == lines[:2]
            continue
        with pytest.raises(CorruptObjectError, match=rf"{path}, byte {size}; .*not complete"):
            while (batch := reader.read()) is not None:
                seen += batch
        path.write_bytes(whole)
        assert seen + drain(source.open(path.name, stored(reader.position))) == lines
        reader.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_whose_text_was_written_anew_between_two_starts_is_an_error(
    kind: str, tmp_path: Path
) -> None:
    lines = [b"%d\n" % n for n in range(2000)]
    path = compressed(kind, tmp_path / "input", b"".join(lines))
    source = TextFileSource(path, chunk_bytes=100)
    first = source.open(path.name, None)
    seen = len(first.read() or []) + len(first.read() or [])
    first.close()
    compressed(kind, tmp_path / "input", *lines)  # the same text again is no other
    again = source.open(path.name, stored(first.position))
    assert seen + len(drain(again)) == 2000
    compressed(kind, tmp_path / "input", b"".join(lines[::-1]))
    other = source.open(path.name, stored(first.position))
    with pytest.raises(StorageError, match=rf"{path}; .*written anew"):
        other.read()
    other.close()


@given(st.sampled_from(["gzip", "zstd"]), st.data())
def test_damage_is_an_error_or_changes_nothing(kind: str, data: st.DataObject) -> None:
    text = b"".join(b"%d %x\n" % (n, n * 7919) for n in range(40))
    with TemporaryDirectory() as directory:
        path = compressed(kind, Path(directory, "input"), text[:200], text[200:])
        damaged = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(damaged)
        try:
            found = read_all(TextFileSource(path))
        except TidelogError as error:
            assert str(path) in str(error)
        else:
            assert found == lines_of(text)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_bomb_takes_no_more_memory_than_the_line_limit(kind: str, tmp_path: Path) -> None:
    text = bytes(more_in_depth(64, 512) << 20)
    path = compressed(kind, tmp_path / "input", text)
    assert path.stat().st_size < len(text) / 500
    del text
    reader = TextFileSource(path, max_line_bytes=1 << 20).open(path.name, None)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=r"line at byte 0; .*within 1048576 bytes"):
            reader.read()
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
        reader.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_followed_file_ends_and_what_is_added_later_is_for_the_next_start(
    kind: str, tmp_path: Path
) -> None:
    path = compressed(kind, tmp_path / "input", b"one\ntwo")
    source = TextFileSource(path, follow=True)
    assert source.discover() == [path.name]
    reader = source.open(path.name, None)
    assert drain(reader) == ["one", "two"]
    again = source.open(path.name, stored(reader.position))
    assert drain(again) == []
    with path.open("ab") as file:
        file.write(KINDS[kind][1](b"three\n"))
    assert drain(source.open(path.name, stored(again.position))) == ["three"]


def test_a_file_that_became_shorter_is_an_error(tmp_path: Path) -> None:
    path = compressed("gzip", tmp_path / "input", b"one\n", b"two\n")
    source = TextFileSource(path)
    reader = source.open(path.name, None)
    drain(reader)
    os.truncate(path, 3)
    with pytest.raises(StorageError, match=f"{path}; expected at least .* found 3 bytes"):
        source.open(path.name, stored(reader.position))
