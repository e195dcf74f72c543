"""CSV files: what Python's csv module reads, from every position, with types and errors."""

import csv
import gzip
from datetime import date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import more_in_depth
from tests.unit.connectors.sources.reading import check_every_restart, drain, read_all, stored
from tidelog import ConfigError, CorruptObjectError, CsvSource, Row

VALUES = st.text(st.sampled_from('a é,;"\n\r\u2028\x0b🌊'), max_size=4)
RECORDS = st.lists(st.lists(VALUES, min_size=2, max_size=2), max_size=8)
LINES = st.lists(
    st.sampled_from(['"a', 'b,c"', 'd","e', "f,g", ',"', 'h"i,', "", '"""",', '"j"k,l']), max_size=8
)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def quoted(value: str) -> str:
    doubled = value.replace('"', '""')
    return f'"{doubled}"' if any(mark in value for mark in ',;\t"\r\n') else value


def of_python(text: str, delimiter: str = ",") -> list[Row]:
    """The definition: what the csv module makes of the whole text, blank lines left out."""
    names, *records = filter(None, csv.reader(StringIO(text, newline=""), delimiter=delimiter))
    return [Row.of(names, record) for record in records]


@settings(max_examples=more_in_depth(60, 300))
@given(RECORDS, st.integers(1, 64), st.sampled_from(",;\t"), st.sampled_from(["\n", "\r\n"]))
def test_a_restart_from_every_position_gives_the_remaining_records(
    records: list[list[str]], chunk_bytes: int, delimiter: str, newline: str
) -> None:
    lines = (delimiter.join(map(quoted, record)) for record in [["x", "y"], *records])
    text = newline.join(lines)
    with TemporaryDirectory() as directory:
        path = written(Path(directory, "input"), text)
        source = CsvSource(path, delimiter=delimiter, chunk_bytes=chunk_bytes)
        check_every_restart(source, "input", of_python(text, delimiter))


@settings(max_examples=more_in_depth(60, 300))
@given(LINES, st.integers(1, 64), st.booleans())
def test_what_is_left_out_does_not_depend_on_chunks_and_restarts(
    lines: list[str], chunk_bytes: int, is_whole: bool
) -> None:
    text = "\n".join(["x,y", *lines]) + "\n" * is_whole
    with TemporaryDirectory() as directory:
        path = written(Path(directory, "input"), text)
        expected = read_all(CsvSource(path, on_error="skip"))
        source = CsvSource(path, on_error="skip", chunk_bytes=chunk_bytes)
        check_every_restart(source, "input", expected)


def test_a_schema_says_what_texts_become(tmp_path: Path) -> None:
    path = written(
        tmp_path / "input.csv",
        "id,price,on,day,seen,tags,note\n"
        "1,2.50,true,2026-01-02,2026-01-02T03:04:05,a|b,x\n"
        ",,,,,,\n"
        "-3,1e3,0,2026-12-31,2026-01-02 03:04,,\n",
    )
    schema = {
        "price": Decimal,
        "id": int,
        "on": bool,
        "day": date,
        "seen": datetime,
        "tags": lambda text: text.split("|"),
        "note": str,
    }
    seen = datetime(2026, 1, 2, 3, 4, 5)
    assert [tuple(row) for row in read_all(CsvSource(path, schema=schema))] == [
        (1, Decimal("2.50"), True, date(2026, 1, 2), seen, ["a", "b"], "x"),
        (None, None, None, None, None, None, ""),
        (-3, Decimal("1e3"), False, date(2026, 12, 31), seen.replace(second=0), None, ""),
    ]
    assert [row.id for row in read_all(CsvSource(path))] == ["1", "", "-3"]


def test_each_file_has_a_header_or_all_have_the_names_given(tmp_path: Path) -> None:
    written(tmp_path / "1.csv", "\n\nuser,n\r\na,1\n")
    written(tmp_path / "2.csv", b"\xef\xbb\xbfn,user\n2,b")
    written(tmp_path / "3.csv", "n,user")
    written(tmp_path / "4.csv", "")
    assert read_all(CsvSource(tmp_path)) == [Row(user="a", n="1"), Row(n="2", user="b")]
    written(tmp_path / "lines.tsv", "a\t1\nb\t2\n")
    source = CsvSource(tmp_path, "*.tsv", {"n": int}, delimiter="\t", header=["user", "n"])
    assert [row.asDict() for row in read_all(source)] == [
        {"user": "a", "n": 1},
        {"user": "b", "n": 2},
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 100_000])
@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("b,x,", "line 4 at byte 16, column 'n'; expected a text that int .* found 'x': invalid"),
        ("b,2", r"line 4 at byte 16; expected 3 values, of \('user', 'n', 'note'\); found 2 val"),
        ('b,2,"x"y', "line 4 at byte 16; expected .*RFC 4180; found ',' expected after '\"'"),
        ("b,2,\xff", "line 4 at byte 16; expected values in UTF-8.* can't decode byte 0xff"),
        ('b,2,"x', "line 4 at byte 16; expected the quote that ends a value; found the end of"),
    ],
)
def test_a_malformed_record_stops_the_job_with_its_line_and_column_or_is_left_out(
    line: str, named: str, chunk_bytes: int, tmp_path: Path
) -> None:
    text = f'user,n,note\na,1,"\n"\n{line}\nc,3,\n'.replace('a,1,"\n"', '"\n",1,')
    path = written(tmp_path / "input.csv", text.encode("latin-1"))
    offset = text.index(line)
    named = named.replace("byte 16", f"byte {offset}")
    with pytest.raises(CorruptObjectError, match=named):
        read_all(CsvSource(path, schema={"n": int}, chunk_bytes=chunk_bytes))
    source = CsvSource(path, schema={"n": int}, on_error="skip", chunk_bytes=chunk_bytes)
    assert [row.n for row in read_all(source)] == [1, 3]
    assert source.skipped == 1


@pytest.mark.parametrize("error", [StopIteration("no"), SystemExit("no"), LookupError("no")])
def test_what_a_function_of_the_schema_raises_is_wrong_with_its_value(
    error: BaseException, tmp_path: Path
) -> None:
    def refuse(text: str) -> str:
        if text == "2":
            raise error
        return text

    path = written(tmp_path / "input.csv", "user,n\na,1\nb,2\nc,3\n")
    with pytest.raises(CorruptObjectError, match=r"line 3 at byte 11, column 'n'; .*'2': no"):
        read_all(CsvSource(path, schema={"n": refuse}))


def test_a_restart_reads_on_at_a_corrected_record(tmp_path: Path) -> None:
    path = written(tmp_path / "input.csv", "user,n\na,1\nb,x\nc,3\n")
    reader = CsvSource(path, schema={"n": int}, chunk_bytes=11).open("input.csv", None)
    assert reader.read() == [Row(user="a", n=1)]
    with pytest.raises(CorruptObjectError, match="correct the line"):
        reader.read()
    written(path, 'user,n\na,1\n"b\n",2222\nc,3\n')
    again = CsvSource(path, schema={"n": int}).open("input.csv", stored(reader.position))
    assert drain(again) == [Row(user="b\n", n=2222), Row(user="c", n=3)]
    reader.close()


def test_a_compressed_file_is_read_on_with_its_header(tmp_path: Path) -> None:
    text = "user,n\n" + "".join(f'"u\n{n}",{n}\n' for n in range(300))
    path = written(tmp_path / "input.csv.gz", gzip.compress(text.encode()))
    source = CsvSource(path, schema={"n": int}, chunk_bytes=500)
    check_every_restart(source, path.name, [Row(user=f"u\n{n}", n=n) for n in range(300)])


def test_a_followed_file_gives_a_record_when_its_last_line_is_there(tmp_path: Path) -> None:
    path = tmp_path / "input.csv"
    source, position, seen = CsvSource(path, follow=True), None, []
    for piece in ("", "user", ',n\n"a', '\n",', "1", "\nb,2", "\n"):
        with path.open("a") as file:
            file.write(piece)
        reader = source.open("input.csv", position)
        seen.append(reader.read())
        position = stored(reader.position)
        reader.close()
    assert seen == [[], [], [], [], [], [Row(user="a\n", n="1")], [Row(user="b", n="2")]]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_the_limit_is_one_of_whole_records(follow: bool, chunk_bytes: int, tmp_path: Path) -> None:
    long = '"' + "x\n" * 24 + 'x"'
    path = written(tmp_path / "input.csv", f'x\n{long[:-3]}"\n{long}\n')
    options: Any = {"follow": follow, "chunk_bytes": chunk_bytes, "max_line_bytes": 50}
    reader = CsvSource(path, **options).open("input.csv", None)
    with pytest.raises(ConfigError, match=r"line at byte 52.*within 50 bytes"):
        while True:
            reader.read()
    reader.close()


def test_a_value_may_be_as_long_as_a_record(tmp_path: Path) -> None:
    path = written(tmp_path / "input.csv", "x,y\n" + "z" * 200_000 + ",1\n")
    assert len(read_all(CsvSource(path))[0].x) == 200_000


@pytest.mark.parametrize(
    ("content", "error", "named"),
    [
        ("n,n\n1,2\n", ConfigError, r"header; expected different names of columns.*'n', 'n'"),
        (
            "user;n\na;1\n",
            ConfigError,
            r"among them \['n'\] of schema=; found \('user;n',\).*delim",
        ),
        ('"n\n1\n', CorruptObjectError, "line 1 at byte 0; expected the quote"),
        ('"n"x\n1\n', CorruptObjectError, "line 1 at byte 0; expected a header"),
    ],
)
def test_a_header_that_does_not_fit_is_named_also_where_records_are_left_out(
    content: str, error: type[Exception], named: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "input.csv", content)
    with pytest.raises(error, match=named):
        read_all(CsvSource(path, schema={"n": int}, on_error="skip"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"delimiter": "ab"}, "delimiter; expected one character"),
        ({"delimiter": '"'}, "delimiter; expected one character"),
        ({"header": "n"}, "header; expected different names"),
        ({"header": ["n", "n"]}, "header; expected different names"),
        ({"header": ["m"], "schema": {"n": int}}, "header; expected different names"),
        ({"header": False}, "header= of CsvSource"),
        ({"schema": {"n": "int"}}, "schema; expected types"),
        ({"on_error": "ignore"}, "on_error"),
    ],
)
def test_options_are_checked(options: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=named):
        CsvSource(tmp_path, **options)
