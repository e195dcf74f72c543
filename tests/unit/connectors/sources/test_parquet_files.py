"""Parquet files: every row once, from every position, with values that checkpoints can carry."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import more_in_depth
from tests.unit.connectors.sources.reading import check_every_restart, drain, read_all, stored
from tidelog import ParquetSource, Row
from tidelog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError, StorageError
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.objects.encoding import decode_records, encode_records


def written(path: Path, columns: Mapping[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


@settings(max_examples=more_in_depth(20, 200))
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.none() | st.text(max_size=3)), max_size=30),
    st.integers(1, 7),
    st.integers(1, 7),
)
def test_a_restart_from_every_position_gives_the_remaining_rows(
    rows: list[tuple[int, str | None]], group: int, batch: int
) -> None:
    with TemporaryDirectory() as directory:
        columns = {"n": pa.array([n for n, _ in rows], pa.int32()), "s": [s for _, s in rows]}
        written(Path(directory, "x.parquet"), columns, row_group_size=group)
        source = ParquetSource(directory, batch_rows=batch)
        check_every_restart(source, "x.parquet", [Row(n=n, s=s) for n, s in rows])


MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123456)
VALUES: Mapping[str, tuple[pa.DataType, Any]] = {
    "tiny": (pa.int8(), -1),
    "big": (pa.uint64(), 2**64 - 1),
    "float": (pa.float32(), 0.5),
    "flag": (pa.bool_(), True),
    "text": (pa.large_string(), "Tide 🌊"),
    "coded": (pa.dictionary(pa.int8(), pa.string()), "code"),
    "bytes": (pa.binary(3), b"abc"),
    "price": (pa.decimal128(9, 2), Decimal("-12.30")),
    "wide": (pa.decimal256(50, 0), Decimal(10**49)),
    "day": (pa.date64(), date(2026, 3, 29)),
    "clock": (pa.time32("ms"), time(23, 59, 59, 999000)),
    "local": (pa.timestamp("ns"), MOMENT),
    "early": (pa.timestamp("s"), datetime(1583, 1, 1)),
    "zoned": (pa.timestamp("us", "Europe/Vienna"), MOMENT.replace(tzinfo=UTC)),
    "took": (pa.duration("ms"), timedelta(seconds=-1)),
    "id": (pa.uuid(), UUID(int=7)),
    "list": (pa.list_(pa.timestamp("ms", "UTC")), [datetime(2026, 1, 1, tzinfo=UTC), None]),
    "map": (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": None}),
    "row": (
        pa.struct({"at": pa.timestamp("ns"), "deep": pa.list_(pa.struct({"x": pa.int64()}))}),
        Row(at=MOMENT, deep=[Row(x=1), None]),
    ),
    "nothing": (pa.null(), None),
}


def as_arrow(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: as_arrow(value[name]) for name in value._fields}
    if isinstance(value, list):
        return list(map(as_arrow, value))
    return list(value.items()) if isinstance(value, dict) else value


def test_values_are_those_of_python_and_can_be_in_flight(tmp_path: Path) -> None:
    columns = {
        name: pa.array([as_arrow(value), None], kind) for name, (kind, value) in VALUES.items()
    }
    written(tmp_path / "all.parquet", columns, store_schema=True)
    rows = read_all(ParquetSource(tmp_path))
    for name, (_, value) in VALUES.items():
        found = rows[0][name]
        assert (name, found, type(found)) == (name, value, type(value))
        assert rows[1][name] is None
    assert rows[0].zoned.tzinfo is UTC and rows[0].row._fields == ("at", "deep")
    types = RecordTypes()
    assert decode_records(*encode_records(rows, types), types) == rows


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1], pa.timestamp("ns")),
        pa.array([2**62], pa.timestamp("us")),
        pa.array([[1]], pa.list_(pa.time64("ns"))),
    ],
    ids=str,
)
def test_what_python_has_no_value_for_is_an_error_with_file_and_column(
    values: Any, tmp_path: Path
) -> None:
    path = written(tmp_path / "x.parquet", {"n": [1], "odd": values})
    with pytest.raises(CorruptObjectError, match=f"{path}, column 'odd'; .*microsecond"):
        read_all(ParquetSource(tmp_path))
    assert read_all(ParquetSource(tmp_path, columns=["n"])) == [Row(n=1)]


def test_columns_are_read_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    written(tmp_path / "1.parquet", {"a": [1], "b.c": ["x"], "d": [None]})
    written(tmp_path / "2.parquet", {"b.c": ["y"], "e": [0], "a": pa.array([2], pa.int16())})
    rows = read_all(ParquetSource(tmp_path, columns=["b.c", "a"]))
    assert [row.asDict() for row in rows] == [{"b.c": "x", "a": 1}, {"b.c": "y", "a": 2}]


@pytest.mark.parametrize(
    ("second", "columns", "message"),
    [
        ({"a": [1]}, None, "2.parquet; expected column 'b' as in .*1.parquet: str; found no such"),
        (
            {"a": [1], "b": [2]},
            None,
            "2.parquet; expected column 'b' as in .*1.parquet: str; found int",
        ),
        ({"a": [1], "b": ["x"], "c": [2]}, None, "2.parquet; expected column 'c' as .* found int"),
        ({"a": [1]}, ["b"], r"2.parquet; expected a column 'b'; found \['a'\]"),
        ({"a": [1], "b": [[2]]}, ["b"], r"column 'b' as in .*: str; found list\[int\]"),
    ],
)
def test_files_that_differ_are_errors_with_file_and_column(
    second: dict[str, Any], columns: Sequence[str] | None, message: str, tmp_path: Path
) -> None:
    written(tmp_path / "1.parquet", {"a": [1], "b": ["x"]})
    written(tmp_path / "2.parquet", second)
    with pytest.raises(ConfigError, match=message):
        read_all(ParquetSource(tmp_path, columns=columns))


@pytest.mark.parametrize(
    ("without", "value", "other"),
    [
        (None, "x", 1),
        ([None], [1], ["x"]),
        ([[]], [[1]], [["x"]]),
        ({"a{": None, "b": [1]}, {"a{": "x", "b": []}, {"a{": 1, "b": [1]}),
    ],
    ids=["column", "list", "list of lists", "row"],
)
def test_values_that_are_missing_fit_what_other_files_have_there(
    without: Any, value: Any, other: Any, tmp_path: Path
) -> None:
    for name, each in enumerate([without, value, without, value]):
        written(tmp_path / f"{name}.parquet", {"a": [each]})
    first, *_, last = read_all(ParquetSource(tmp_path))
    assert as_arrow(last.a) == value and (without is not None or first.a is None)
    written(tmp_path / "4.parquet", {"a": [other]})
    with pytest.raises(ConfigError, match=r"4.parquet; expected column 'a' as in .*1.parquet: "):
        read_all(ParquetSource(tmp_path))


def test_a_large_file_is_read_in_ranges_of_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.connectors.files.parquet._SPLIT_BYTES", 1500)
    path = written(tmp_path / "x.parquet", {"n": range(1000)}, row_group_size=100)
    source = ParquetSource(path)
    splits = source.discover()
    assert splits == [f"x.parquet/groups-{at}-{at + 1}" for at in range(0, 10, 2)]
    for at, split in enumerate(splits):
        rows = [Row(n=n) for n in range(200 * at, 200 * at + 200)]
        check_every_restart(ParquetSource(path, batch_rows=70), split, rows)


def test_a_directory_may_be_called_as_ranges_are(tmp_path: Path) -> None:
    names = ("groups-2026/x.parquet", "groups-0-1/y.parquet", "groups-0-0")
    for n, name in enumerate(names):
        written(tmp_path / "lake" / name, {"n": [n]})
    assert read_all(ParquetSource(tmp_path, "*")) == [Row(n=2), Row(n=1), Row(n=0)]


def test_memory_is_that_of_batches_however_large_a_row_group_is(tmp_path: Path) -> None:
    text = ["x" * 1000 + str(n) for n in range(20_000)]
    written(tmp_path / "x.parquet", {"s": text}, use_dictionary=False, data_page_size=1 << 16)
    size = (tmp_path / "x.parquet").stat().st_size
    before = pa.total_allocated_bytes()
    most, rows = 0, 0
    reader = ParquetSource(tmp_path, batch_rows=256).open("x.parquet", None)
    while (batch := reader.read()) is not None:
        rows += len(batch)
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == len(text)
    assert most < 8 << 20 < sum(map(len, text)), size


def test_a_file_counts_when_its_footer_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidelog")
    whole = written(tmp_path / "done" / "x", {"n": [1, 2]}).read_bytes()
    path = tmp_path / "in" / "x.parquet"
    path.parent.mkdir()
    followed = ParquetSource(path.parent, follow=True)
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        assert followed.discover() == []
        with pytest.raises(CorruptObjectError, match=f"{path}; expected a complete Parquet file"):
            ParquetSource(path.parent).discover()
    assert caplog.text.count("is not complete") == 1
    path.write_bytes(whole)
    assert followed.discover() == ["x.parquet"]
    assert drain(followed.open("x.parquet", None)) == [Row(n=1), Row(n=2)]


def test_a_file_that_was_replaced_or_is_gone_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", {"n": [1, 2]})
    source = ParquetSource(tmp_path, batch_rows=1)
    reader = source.open("x.parquet", None)
    reader.read()
    reader.close()
    written(path, {"n": [1, 2, 3]})
    with pytest.raises(StorageError, match=f"{path}; expected 2 rows, .*found 3"):
        source.open("x.parquet", stored(reader.position))
    path.unlink()
    with pytest.raises(ObjectNotFoundError, match=str(path)):
        source.open("x.parquet", stored(reader.position))


def test_nanoseconds_of_int96_columns_are_refused_and_all_other_times_are_read(
    tmp_path: Path,
) -> None:
    """Whatever the year: a number of nanoseconds only reaches from 1677 to 2262."""
    times = [datetime(1, 1, 1), None, MOMENT, datetime(9999, 12, 31, 23, 59, 59, 999999)]
    old = {"use_deprecated_int96_timestamps": True, "row_group_size": 2}
    nested = pa.array([[moment] for moment in times], pa.list_(pa.timestamp("us")))
    columns = {"at": pa.array(times, pa.timestamp("us")), "all": nested}
    written(tmp_path / "good.parquet", columns, **old)
    source = ParquetSource(tmp_path / "good.parquet", batch_rows=1)
    assert read_all(source) == [Row(at=moment, all=[moment]) for moment in times]
    exact = pa.array([0, 1_000, 1_001], pa.timestamp("ns"))
    for column in ({"at": exact}, {"at": pa.array([[each] for each in exact])}):
        path = written(tmp_path / "bad.parquet", {**column, "n": [1, 2, 3]}, **old)
        with pytest.raises(
            CorruptObjectError, match=r"column 'at.*times to the micro.*found .*1 n"
        ):
            read_all(ParquetSource(path))
        assert read_all(ParquetSource(path, columns=["n"])) == [Row(n=n) for n in (1, 2, 3)]


def test_a_map_that_has_a_key_twice_is_refused(tmp_path: Path) -> None:
    pairs = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(CorruptObjectError, match=r"column 'm'; .*found a map that has a key twice"):
        read_all(ParquetSource(written(tmp_path / "m.parquet", {"m": pairs})))
