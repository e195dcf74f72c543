"""What a query of the zoo is: its input, the query itself, and the result by plain Python.

Invariant: a result depends on the input alone, never on time, on the cut into rounds, or on a
batch that runs twice.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.spark.support.place import Place, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batch = dict[str, list[Row]]
"""The records of one batch, by source."""

Result = Any

END = "~end"
"""Key of the records that only push the watermark beyond all others."""

LATE = "late"
"""Key of the records that come far too late for the watermark."""

FIRST_S = 100
"""Event time of the first batch of `events`, in seconds; Spark's watermark starts at 0."""

BATCH_S = 10
"""Event time that one batch of `events` covers, in seconds."""

APART_S = 5
"""So far apart in event time may two rows be that are joined."""


@dataclass(frozen=True)
class Topics:
    """Input in Kafka: a topic for each source, with one JSON object a message."""

    bootstrap: str
    prefix: str
    per_batch: int = 20

    def name(self, source: str) -> str:
        return f"{self.prefix}.{source}"


@dataclass(frozen=True)
class Sources:
    """Opens the input of a query as streams: one batch per file, or some messages of each topic."""

    spark: "SparkSession"
    place: Place
    schema: str
    topics: Topics | None = None

    def stream(self, name: str = "events") -> "DataFrame":
        reader = self.spark.readStream
        if self.topics is None:
            files = reader.schema(self.schema).option("maxFilesPerTrigger", 1)
            return files.json(str(self.place.source(name)))
        from pyspark.sql import functions as F  # noqa: PLC0415  (the tests skip without it)

        messages = (
            reader.format("kafka")
            .option("kafka.bootstrap.servers", self.topics.bootstrap)
            .option("subscribe", self.topics.name(name))
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.topics.per_batch)
            .load()
        )
        return messages.select(
            F.from_json(F.col("value").cast("string"), self.schema).alias("row")
        ).select("row.*")


@dataclass(frozen=True)
class Query:
    name: str
    build: Callable[[Sources], "DataFrame"]
    batches: Callable[[], list[Batch]]
    expected: Callable[[list[Batch]], Result]
    mode: str = "append"
    key: tuple[str, ...] = ()
    """Columns that name a row of an update stream; empty: rows are only ever appended."""
    schema: str = "k string, t long, v long"
    settings: Mapping[str, str] = field(default_factory=dict)

    def result(self, rows: list[Row]) -> Result:
        """What the rows written so far amount to."""
        rows = [row for row in rows if row.get("k") != END]
        if not self.key:
            return ordered(rows)
        return {tuple(row[name] for name in self.key): row for row in rows}


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: sorted((name, str(cell)) for name, cell in row.items()))


def by_key(rows: list[Row], *names: str) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in names): row for row in rows}


def records(batches: list[Batch], source: str = "events") -> list[Row]:
    """All records that count: neither late ones nor those that end the stream."""
    found = [record for batch in batches for record in batch.get(source, [])]
    return [record for record in found if record["k"] not in (END, LATE)]


def events(
    seed: int, batches: int = 9, per_batch: int = 20, keys: int = 12, ends: bool = False
) -> list[list[Row]]:
    """Records of which each batch covers its own ten seconds and ten before, in any order.

    With `ends`, some records come too late for any watermark, and two last batches push the
    watermark beyond all records.
    """
    rng = random.Random(seed)
    made = []
    for batch in range(batches):
        start = FIRST_S + batch * BATCH_S
        rows = [
            {
                "k": f"k{rng.randrange(keys)}",
                "t": start + rng.randrange(-BATCH_S, BATCH_S),
                "v": rng.randrange(1000),
            }
            for _ in range(per_batch)
        ]
        if ends and batch >= 7:
            rows.append({"k": LATE, "t": 1, "v": 1})
        made.append(rows)
    if ends:
        made += [[{"k": END, "t": end, "v": 0}] for end in (10_000, 20_000)]
    return made


def single(made: list[list[Row]]) -> list[Batch]:
    """Batches of a query with one source."""
    return [{"events": rows} for rows in made]


def with_time(frame: "DataFrame", delay_s: int = 2 * BATCH_S) -> "DataFrame":
    """Adds the event time `ts` with a watermark that no record but the late ones misses."""
    return frame.withColumn("ts", frame.t.cast("timestamp")).withWatermark(
        "ts", f"{delay_s} seconds"
    )
