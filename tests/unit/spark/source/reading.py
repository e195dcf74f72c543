"""The data source without Spark: planned and read as Spark does it, parts sent by pickle."""

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tidelog.spark.source.options import read_options
from tidelog.spark.source.parts import ReadPart, ReadRequest, connected, schema
from tidelog.spark.source.planning import plan
from tidelog.spark.source.views import chosen

Row = dict[str, Any]


def request(location: Path | str, **options: object) -> ReadRequest:
    """What a load with these options asks for."""
    given = {name: str(value) for name, value in options.items()}
    read = read_options({"path": str(location), **given})
    return ReadRequest(read, chosen(read.view, read.columns, decode=read.decode))


def planned(asked: ReadRequest) -> list[ReadPart]:
    """The parts of a request, after their way to an executor."""
    with connected(asked.options.url, asked.options.access) as session:
        parts: list[ReadPart] = pickle.loads(
            pickle.dumps(list(session.run(plan(session.store, asked))))
        )
    return parts


def batches(asked: ReadRequest, parts: Iterable[ReadPart]) -> list[pa.RecordBatch]:
    """What the parts yield; each batch has the schema that Spark insists on."""
    with connected(asked.options.url, asked.options.access) as session:
        found = [batch for part in parts for batch in part.read(asked, session)]
    assert all(batch.schema == schema(asked.columns) for batch in found)
    for batch in found:
        batch.validate(full=True)
    return found


def read(location: Path | str, **options: object) -> list[Row]:
    """All rows of a load."""
    asked = request(location, **options)
    return [row for batch in batches(asked, planned(asked)) for row in batch.to_pylist()]


def bag(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> Counter[str]:
    """Rows as a multiset, or some columns of them."""
    kept = ({name: row[name] for name in columns} if columns else dict(row) for row in rows)
    return Counter(msgspec.json.encode(row, order="sorted", enc_hook=str).decode() for row in kept)
