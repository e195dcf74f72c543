"""What every source does: whatever checkpoint a job goes on from, it has each record once."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.support.clock import VirtualClock
from tests.support.depth import one_by_one
from tests.support.pipelines import Outside
from tests.support.pressure import (
    checkpoints,
    outside_as_of,
    overtaken,
    pressed,
    resumed,
    slowly,
    under_pressure,
)
from tests.unit.connectors.sources.test_push import Numbers
from tidelog import (
    CsvSource,
    IterableSource,
    Job,
    JsonLinesSource,
    KafkaSource,
    ParquetSource,
    PostgresOutboxSource,
    RateSource,
    Row,
    Source,
    SplitReader,
    TextFileSource,
)
from tidelog.errors import ObjectNotFoundError, RestoreError

Case = tuple[Callable[[], Source], list[Any]]
"""A source, and all its records."""

LINES = [[f"{file} {n}" for n in range(40)] for file in range(2)]
ALL_LINES = [line for lines in LINES for line in lines]


def written(directory: Path, suffix: str, compress: Callable[[bytes], bytes] = bytes) -> None:
    """Two files, of several members each where they are compressed."""
    for number, lines in enumerate(LINES):
        members = ("\n".join([*lines[at : at + 8], ""]).encode() for at in range(0, 40, 8))
        (directory / f"{number}{suffix}").write_bytes(b"".join(map(compress, members)))


def text(directory: Path) -> Case:
    written(directory, ".txt")
    return lambda: TextFileSource(directory, chunk_bytes=30), ALL_LINES


def compressed(directory: Path) -> Case:
    written(directory, ".gz", gzip.compress)
    (directory / "2.zst").write_bytes(zstandard.ZstdCompressor().compress(b"z 0\nz 1\nz 2"))
    return lambda: TextFileSource(directory, chunk_bytes=30), [*ALL_LINES, "z 0", "z 1", "z 2"]


def json_lines(directory: Path) -> Case:
    rows = [{"n": n, "in": [{"s": "tide"}]} for n in range(40)]
    (directory / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    records = [Row.of(("n", "in"), (n, [Row.of(("s",), ("tide",))])) for n in range(40)]
    return lambda: JsonLinesSource(directory, chunk_bytes=90), records


def csv_records(directory: Path) -> Case:
    """Files with headers of their own, and values with line breaks."""
    for number in range(2):
        rows = [f'{n},"tide\n{n % 3}"\n' for n in range(number * 20, number * 20 + 20)]
        (directory / f"{number}.csv").write_text("".join(["n,s\n", *rows]))
    records = [Row.of(("n", "s"), (n, f"tide\n{n % 3}")) for n in range(40)]
    return lambda: CsvSource(directory, schema={"n": int}, chunk_bytes=40), records


def parquet(directory: Path) -> Case:
    """More files than are read at once."""
    for number in range(10):
        table = pa.table({"n": [number * 6 + row for row in range(6)]})
        pq.write_table(table, directory / f"{number}.parquet", row_group_size=4)
    return lambda: ParquetSource(directory, batch_rows=2), [Row.of(("n",), (n,)) for n in range(60)]


class KnownReader(SplitReader):
    """Two reads of two records each; the second one is known to be the last."""

    def __init__(self, split: str, position: int) -> None:
        self.position = position
        self._split = split

    @property
    def at_end(self) -> bool:  # type: ignore[override]
        return self.position == 4

    def read(self) -> list[Any] | None:
        assert not self.at_end, "asked for an end that it had said"
        first, self.position = self.position, self.position + 2
        return [f"{self._split}, {number}" for number in range(first, first + 2)]


class Known(Source):
    def __init__(self, *, blocking: bool) -> None:
        self.blocking = blocking

    def discover(self) -> list[str]:
        return [f"file {number}" for number in range(40)]

    def open(self, split: str, position: Any) -> KnownReader:
        return KnownReader(split, position or 0)


KNOWN_RECORDS = [f"file {split}, {number}" for split in range(40) for number in range(4)]


FILES = {
    "text": text,
    "compressed": compressed,
    "json lines": json_lines,
    "csv": csv_records,
    "parquet": parquet,
}
OTHERS: dict[str, Case] = {
    "replayable": (
        lambda: IterableSource({"a": range(40), "b": lambda: iter(range(40, 80))}),
        list(range(80)),
    ),
    "blocking": (lambda: IterableSource(lambda: iter(range(30)), blocking=True), list(range(30))),
    "rate": (lambda: RateSource(None, splits=2, limit=60), list(range(60))),
    "known ends": (lambda: Known(blocking=False), KNOWN_RECORDS),
    "known blocking ends": (lambda: Known(blocking=True), KNOWN_RECORDS),
    "pushed": (lambda: Numbers(3, 40), [(str(each), n) for each in range(3) for n in range(40)]),
}


@one_by_one(case=[*FILES, *OTHERS], parallelism=[2, 1])
def test_a_job_goes_on_from_every_checkpoint(case: str, parallelism: int, tmp_path: Path) -> None:
    make, records = FILES[case](tmp_path) if case in FILES else OTHERS[case]

    def job(sink: Outside, clock: VirtualClock) -> Job:
        job = Job("copy")
        stream = job.source(make(), parallelism=parallelism)
        slowly(stream.rebalance(), clock, 0.2).sink(sink)
        return job

    settings = pressed(channel_buffers=1, buffer_records=2)
    sink, store = under_pressure(job, settings)
    assert sorted(sink.records, key=str) == sorted(records, key=str)
    taken = checkpoints(store)
    assert any(0 < len(outside_as_of(sink, each).records) < len(sink.records) for each in taken)
    assert case != "pushed" or any(map(overtaken, taken)), "it pushed until there was no room"
    for checkpoint in taken:
        again = resumed(job, store, sink, checkpoint, settings)
        assert sorted(again.records, key=str) == sorted(records, key=str)


def test_a_position_that_another_kind_of_files_has_stored_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), path)
    text, rows = TextFileSource(path), ParquetSource(path)
    for source, other in ((text, rows), (rows, text)):
        position = other.open(path.name, None).position
        assert source.open(path.name, None).read()
        with pytest.raises(RestoreError, match="another kind that had the source's name before"):
            source.open(path.name, position)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (lambda: RateSource(1), RestoreError),
        (lambda: IterableSource([1]), RestoreError),
        (lambda: PostgresOutboxSource("host=a", "words"), RestoreError),
        (lambda: KafkaSource("words", bootstrap="a:1"), ObjectNotFoundError),
    ],
    ids=["rate", "replayable", "outbox", "kafka"],
)
def test_a_split_that_another_source_has_left_is_named(
    source: Callable[[], Source], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"'a\.txt'"):
        source().open("a.txt", 3)
