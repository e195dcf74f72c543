"""JSON lines: rows from objects, and what happens to lines that are none."""

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import more_in_depth
from tests.unit.connectors.sources.reading import check_every_restart, drain, read_all, stored
from tidelog import CorruptObjectError, JsonLinesSource, Row

OBJECTS = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    max_size=4,
)


def row(value: Any) -> Any:
    """The definition: objects are rows, arrays lists."""
    if isinstance(value, dict):
        return Row.of(value, [row(item) for item in value.values()])
    return [row(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=more_in_depth(40, 100))
@given(st.lists(OBJECTS, max_size=8), st.integers(1, 64), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_a_restart_from_every_position_gives_the_remaining_rows(
    objects: list[dict[str, Any]], chunk_bytes: int, newline: str
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "input")
        path.write_bytes(newline.join(map(json.dumps, objects)).encode())
        source = JsonLinesSource(path, chunk_bytes=chunk_bytes)
        check_every_restart(source, "input", [row(item) for item in objects])


@pytest.mark.parametrize(
    "bad",
    [
        b"{",
        b"1",
        b"[]",
        b"null",
        b'{"a": 1} {"b": 2}',
        b'{"a": "\xff"}',
        b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1, 100_000])
def test_a_malformed_line_stops_the_job_with_its_place_or_is_left_out_and_counted(
    bad: bytes, chunk_bytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_bytes(b'{"n": 1}\n\n' + bad + b'\n \t\r\n{"n": 2}')
    with pytest.raises(CorruptObjectError, match=f"{path}, line 3 at byte 10; .*JSON object"):
        read_all(JsonLinesSource(path, chunk_bytes=chunk_bytes))
    reader = JsonLinesSource(path, on_error="skip", chunk_bytes=chunk_bytes).open("input", None)
    assert (drain(reader), reader.counts.total()) == ([Row(n=1), Row(n=2)], 1)


@pytest.mark.parametrize("corrected", [b"[]", b'{"n":2}', b'{"n":2, "why": "a longer line"}'])
def test_a_restart_reads_on_at_a_corrected_line(corrected: bytes, tmp_path: Path) -> None:
    path, before, after = tmp_path / "input", b'{"n":1}\n', b'\n{"n":3}\n{"n":4}\n'
    path.write_bytes(before + b'{"n":2x}' + after)
    reader = JsonLinesSource(path, chunk_bytes=8).open("input", None)
    assert reader.read() == [Row(n=1)]
    with pytest.raises(CorruptObjectError, match="correct the line"):
        reader.read()
    path.write_bytes(before + corrected + after)
    again = JsonLinesSource(path, on_error="skip").open("input", stored(reader.position))
    read = [row.n for row in drain(again)]
    assert read == ([3, 4] if corrected == b"[]" else [2, 3, 4])
    reader.close()


def test_as_many_objects_as_lines_are_not_one_per_line(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b'{"n":1} {"n":2}\n{"n":\n3}\n{"n":4}\n')
    reader = JsonLinesSource(tmp_path / "input", on_error="skip").open("input", None)
    assert (drain(reader), reader.counts.total()) == ([Row(n=4)], 3)


@pytest.mark.parametrize("chunk_bytes", [1, 100_000])
def test_files_of_other_systems_are_read(tmp_path: Path, chunk_bytes: int) -> None:
    path = tmp_path / "input"
    path.write_bytes(b'\xef\xbb\xbf{"a": "x"}\r\n{}\r\n\r\n{"a": [{}]}\r\n')
    rows = read_all(JsonLinesSource(path, chunk_bytes=chunk_bytes))
    assert rows == [Row(a="x"), Row(), Row(a=[Row()])]
    assert [row.asDict(True) for row in rows] == [{"a": "x"}, {}, {"a": [{}]}]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b'[{"n": 1}, {"n": 2}]', r"line 1 at .*one JSON object a line; .*jq -c '\.\[\]'"),
        (b'[\n  {"n": 1}\n]\n', r"line 1 at .*one JSON object a line; .*jq -c '\.\[\]'"),
        (b'{\n  "n": 1\n}\n', r"line 1 at .*one JSON object a line; .*jq -c \.` "),
        (b"\xef\xbb\xbfuser;n\na;1\n", "line 1 at .*one JSON object a line; .* by CsvSource"),
    ],
)
def test_the_error_of_a_file_of_another_format_says_what_it_looks_like(
    content: bytes, named: str, tmp_path: Path
) -> None:
    (tmp_path / "input").write_bytes(content)
    with pytest.raises(CorruptObjectError, match=named):
        read_all(JsonLinesSource(tmp_path / "input"))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_the_number_of_a_malformed_line_is_that_in_the_text(suffix: str, tmp_path: Path) -> None:
    text = b'{"n": 1}\n' * 2999 + b"{]\n"
    data = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix](text)
    (tmp_path / f"input{suffix}").write_bytes(data)
    with pytest.raises(CorruptObjectError, match=f"input{suffix}, line 3000 at byte {2999 * 9}"):
        read_all(JsonLinesSource(tmp_path, chunk_bytes=1000))
