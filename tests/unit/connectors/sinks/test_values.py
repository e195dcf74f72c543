"""What becomes of each kind of value in each kind of column: it goes in exactly, or is refused."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from pyiceberg import types as lake_types

from tests.support.iceberg import Lake
from tests.support.postgres import query
from tests.unit.connectors.sinks.job import context, pre_committed
from tidelog import FileSink, IcebergSink, PostgresSink, SqliteSink
from tidelog.errors import UserFunctionError
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink

EAST = timezone(timedelta(hours=2))
NOON = datetime(2026, 7, 1, 12, 0, 0, 250000)
DAY = date(2026, 7, 1)
ID = UUID(int=5)
LONG_INT = (1 << 53) + 1
"""Of which there is no float."""

VALUES: Mapping[str, Any] = {
    "true": True,
    "int": 5,
    "long int": LONG_INT,
    "huge int": (1 << 70) + 1,
    "whole float": 5.0,
    "float": 1.75,
    "huge float": 1e300,
    "tiny float": 1e-300,
    "decimal": Decimal("1.239"),
    "short decimal": Decimal("1.50"),
    "numpy int": np.int64(5),
    "numpy float": np.float32(1.75),
    "text": "abc",
    "digits": "007",
    "bytes": b"ab",
    "day": DAY,
    "naive": NOON,
    "zoned": NOON.replace(tzinfo=EAST),
    "time": time(12, 0, 0, 250000),
    "zoned time": time(12, tzinfo=EAST),
    "span": timedelta(seconds=-1, microseconds=1),
    "id": ID,
    "ints": [1, None],
    "floats": [1.75],
    "byte strings": [b"ab"],
    "dict": {"a": 1},
    "dict of floats": {"a": 1.75},
}

_INTS = {"int": 5, "long int": LONG_INT, "numpy int": 5}
_SINGLES = {"int": 5.0, "whole float": 5.0, "float": 1.75, "numpy int": 5.0, "numpy float": 1.75}
_DOUBLES = {**_SINGLES, "huge float": 1e300, "tiny float": 1e-300}
_MONEY = {"int": Decimal("5.00"), "short decimal": Decimal("1.50"), "numpy int": Decimal("5.00")}
_MIDNIGHT = datetime(2026, 7, 1)
_TIMES = {"day": _MIDNIGHT, "naive": NOON, "zoned": NOON - timedelta(hours=2)}
_ZONED = {name: moment.replace(tzinfo=UTC) for name, moment in _TIMES.items()}
_TAKEN_BY_SQLITE: dict[str, Any] = {
    "true": 1,
    "int": 5,
    "long int": LONG_INT,
    "whole float": 5.0,
    "float": 1.75,
    "huge float": 1e300,
    "tiny float": 1e-300,
    "text": "abc",
    "bytes": b"ab",
}

ICEBERG: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "flag": (lake_types.BooleanType(), {"true": True}),
    "int": (lake_types.IntegerType(), {"int": 5, "numpy int": 5}),
    "long": (lake_types.LongType(), _INTS),
    "float": (lake_types.FloatType(), _SINGLES),
    "double": (lake_types.DoubleType(), _DOUBLES),
    "money": (lake_types.DecimalType(9, 2), _MONEY),
    "string": (lake_types.StringType(), {"text": "abc", "digits": "007"}),
    "binary": (lake_types.BinaryType(), {"bytes": b"ab"}),
    "fixed": (lake_types.FixedType(2), {"bytes": b"ab"}),
    "date": (lake_types.DateType(), {"day": DAY}),
    "time": (lake_types.TimeType(), {"time": VALUES["time"]}),
    "timestamp": (lake_types.TimestampType(), _TIMES),
    "timestamptz": (lake_types.TimestamptzType(), _ZONED),
    "uuid": (lake_types.UUIDType(), {"id": ID}),
    "longs": (lake_types.ListType(101, lake_types.LongType(), False), {"ints": [1, None]}),
    "strings": (lake_types.ListType(102, lake_types.StringType(), False), {}),
    "map": (
        lake_types.MapType(103, lake_types.StringType(), 104, lake_types.LongType(), False),
        {"dict": [("a", 1)]},
    ),
    "struct": (
        lake_types.StructType(lake_types.NestedField(105, "a", lake_types.LongType())),
        {"dict": {"a": 1}},
    ),
}
POSTGRES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "flag": ("boolean", {"true": True}),
    "small": ("smallint", {"int": 5, "numpy int": 5}),
    "long": ("bigint", _INTS),
    "single": ("real", _SINGLES),
    "double": ("double precision", _DOUBLES),
    "money": ("numeric(9, 2)", _MONEY),
    "exact": (
        "numeric",
        {
            "decimal": Decimal("1.239"),
            "short decimal": Decimal("1.50"),
            **_INTS,
            "huge int": Decimal((1 << 70) + 1),
        },
    ),
    "words": ("text", {"text": "abc", "digits": "007"}),
    "short": ("varchar(3)", {"text": "abc", "digits": "007"}),
    "shorter": ("varchar(2)", {}),
    "raw": ("bytea", {"bytes": b"ab"}),
    "day": ("date", {"day": DAY}),
    "clock": ("time", {"time": VALUES["time"]}),
    "local": ("timestamp", _TIMES),
    "zoned": ("timestamptz", _ZONED),
    "seconds": ("timestamptz(0)", {"day": _ZONED["day"]}),
    "span": ("interval", {"span": VALUES["span"]}),
    "id": ("uuid", {"id": ID}),
    "longs": ("bigint[]", {"ints": [1, None]}),
    "days": ("date[]", {}),
}
SQLITE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "integer": ("INTEGER", _TAKEN_BY_SQLITE),
    "numeric": ("DECIMAL(9, 2)", _TAKEN_BY_SQLITE),
    "real": ("REAL", {n: v for n, v in _TAKEN_BY_SQLITE.items() if n != "long int"}),
    "text": ("TEXT", {"text": "abc", "digits": "007", "bytes": b"ab"}),
    "blob": ("BLOB", {**_TAKEN_BY_SQLITE, "digits": "007"}),
}


def check(
    sink: Sink,
    columns: Mapping[str, tuple[Any, Mapping[str, Any]]],
    values: Callable[[str], Sequence[str]],
    stored: Callable[[], Sequence[Mapping[str, Any]]],
) -> None:
    """Write each value into each column: it is stored as the table says, or refused."""
    writer = sink.open(context())
    expected = []
    for column, (_, taken) in columns.items():
        for name in values(column):
            record = {**dict.fromkeys(columns), column: VALUES[name], "number": len(expected)}
            if name in taken:
                writer.write([record])
                expected.append((column, name, taken[name]))
            else:
                with pytest.raises(UserFunctionError, match=f"column '{column}'"):
                    writer.write([record])
                    pytest.fail(f"{name} went into {column}")
    transaction = writer.pre_commit(CheckpointId(1))
    assert transaction is not None
    writer.commit(transaction)
    writer.close()
    rows = sorted(stored(), key=lambda row: row["number"])
    found = [(c, n, row[c]) for (c, n, _), row in zip(expected, rows, strict=True)]
    assert found == expected


def every(column: str) -> Sequence[str]:
    return list(VALUES)


def test_iceberg_stores_a_value_exactly_or_refuses_the_record(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create("lake.kinds", **{c: kind for c, (kind, _) in ICEBERG.items()}, number="long")
    check(IcebergSink(lake.catalog, "lake.kinds"), ICEBERG, every, lambda: lake.rows("lake.kinds"))


def test_postgres_stores_a_value_exactly_or_refuses_the_record(conninfo: str) -> None:
    """Whatever the zone of the server is; texts are read by PostgreSQL, so they are left out."""
    columns = {column: kind for column, (kind, _) in POSTGRES.items()} | {"number": "bigint"}

    def others(column: str) -> Sequence[str]:
        texts = () if column in ("words", "short", "shorter") else ("text", "digits")
        return [name for name in VALUES if name not in texts]

    def stored() -> list[dict[str, Any]]:
        rows = query(conninfo, "SELECT * FROM kinds")
        return [dict(zip(columns, row, strict=True)) for row in rows]

    with server_zone(conninfo, "America/New_York"):
        check(PostgresSink(conninfo, "kinds", columns), POSTGRES, others, stored)


@contextmanager
def server_zone(conninfo: str, zone: str) -> Iterator[None]:
    database = dict(part.split("=") for part in conninfo.split())["dbname"]
    query(conninfo, f"ALTER DATABASE {database} SET timezone = '{zone}'")
    yield


def test_texts_are_read_by_postgres_in_utc(conninfo: str) -> None:
    with server_zone(conninfo, "America/New_York"):
        writer = PostgresSink(conninfo, "texts", {"at": "timestamptz", "n": "bigint"}).open(
            context()
        )
        writer.commit(pre_committed(writer, 1, ("2026-07-01T12:00:00", "5")))
    assert query(conninfo, "SELECT * FROM texts") == [(NOON.replace(microsecond=0, tzinfo=UTC), 5)]


def test_sqlite_stores_a_value_exactly_or_refuses_the_record(tmp_path: Path) -> None:
    columns = {column: kind for column, (kind, _) in SQLITE.items()} | {"number": "INTEGER"}

    def stored() -> list[dict[str, Any]]:
        with closing(sqlite3.connect(tmp_path / "kinds.db")) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM kinds")]

    check(SqliteSink(tmp_path / "kinds.db", "kinds", columns), SQLITE, every, stored)


@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, "\ud800"])
def test_files_refuse_what_json_has_no_value_for(value: Any, tmp_path: Path) -> None:
    writer = FileSink(tmp_path / "out").open(context())
    with pytest.raises(UserFunctionError, match="expected a value that JSON has"):
        writer.write([{"a": value}])
