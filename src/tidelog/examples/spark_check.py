"""The Spark word count read back: its state, and whether that equals a count of the same files.

Invariant: nothing here shares code with the query. The state comes from Spark's state data source,
the files from the log of its file source, and words from `str.split` itself.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

import click

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, Row, SparkSession

SHOWN: Final = 20
"""How many differing words are collected."""

_GLOB: Final = re.compile(r"([\\{}\[\]*?])")
_LOG_OFFSET: Final = re.compile(r'"logOffset":(\d+)')


def report(spark: "SparkSession", checkpoint: str, top: int) -> int:
    """Print whether the state is right, and its most frequent words; returns the exit code."""
    batch = committed_batch(spark, checkpoint)
    if batch is None:
        click.echo(f"no batch is committed in {checkpoint}: nothing to compare", err=True)
        return 1
    counts = state(spark, checkpoint, batch).cache()
    if top:
        frequent = counts.orderBy("count", "word", ascending=[False, True])
        for row in frequent.limit(top).collect():
            click.echo(f"{row[1]:>12,} {row.word}")
    files = counted_files(spark, checkpoint, batch)
    words, occurrences, differing = compare(counts, files)
    sizes = f"{words:,} words, {occurrences:,} occurrences, {len(files):,} files"
    if not differing:
        click.echo(f"verified: the state of batch {batch} equals a batch count ({sizes})")
        return 0
    click.echo(f"WRONG: the state of batch {batch} differs from a batch count ({sizes})", err=True)
    for word, counted, expected in differing:
        click.echo(f"  {word!r}: {counted} in the state, {expected} in the files", err=True)
    if len(differing) == SHOWN:
        click.echo("  and maybe more", err=True)
    return 1


def committed_batch(spark: "SparkSession", checkpoint: str) -> int | None:
    """The newest committed batch; None when there is none."""
    operators = spark.read.format("state-metadata").load(checkpoint).select("maxBatchId").collect()
    newest: int = max((operator.maxBatchId for operator in operators), default=-1)
    return newest if newest >= 0 else None


def state(spark: "SparkSession", checkpoint: str, batch: int) -> "DataFrame":
    """The counts as of a committed batch: word, count."""
    rows = spark.read.format("statestore").option("batchId", batch).load(checkpoint)
    return rows.selectExpr("key.word as word", "value.count as count")


class Comparison(NamedTuple):
    """The state of a committed batch beside a count of its input files."""

    words: int
    """Words in the state."""
    occurrences: int
    """Occurrences of all words in the state."""
    differing: list["Row"]
    """Up to SHOWN words that differ, each with its count in the state and in the files, or None."""


def compare(counts: "DataFrame", files: list[str]) -> Comparison:
    """Compare the state of a committed batch, word and count, with a count of its input files.

    A word that is twice in the state differs. So does what a file that was changed after the query
    has read it holds; a file that is gone is Spark's AnalysisException.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    expected = _counted(counts.sparkSession.read.text([literal(path) for path in files]))
    # One aggregation over both: a join would sort all words of both.
    both = counts.unionByName(expected, allowMissingColumns=True).groupBy("word")
    sums = both.agg(
        f.sum("count").alias("count"), f.sum("part").alias("files"), f.count("count").alias("rows")
    )
    wrong = sums.where("rows > 1 or not (count <=> files)").drop("rows")
    differing = wrong.orderBy("word").limit(SHOWN).collect()
    words, occurrences = counts.selectExpr("count(*)", "coalesce(sum(count), 0)").collect()[0]
    return Comparison(words, occurrences, differing)


def _counted(lines: "DataFrame") -> "DataFrame":
    """How often each word is in the lines: word, part; a word has a row per partition."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    # Not a function of this module: executors may have no tidelog.
    def count(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
        from pyarrow import RecordBatch  # noqa: PLC0415

        counts: Counter[str] = Counter()
        for batch in batches:
            counts.update("\n".join(batch.column(0).to_pylist()).split())
        columns = {"word": list(counts), "part": list(counts.values())}
        yield RecordBatch.from_pydict(columns)

    # Of bytes that are no UTF-8, Java makes what the query has seen; no line has a line feed.
    decoded = lines.select(f.split("value", "\n")[0])
    return decoded.mapInArrow(count, "word string, part long")


def counted_files(spark: "SparkSession", checkpoint: str, batch: int) -> list[str]:
    """The files that went into the state of a batch, from the log of Spark's file source."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    root = literal(checkpoint.rstrip("/"))
    offsets = spark.read.text(f"{root}/offsets/{batch}", wholetext=True).collect()[0].value
    last = int(_LOG_OFFSET.findall(offsets)[-1])
    lines = spark.read.text(f"{root}/sources/0").where("value like '{%'")
    entry = f.from_json("value", "path string, batchId long").alias("entry")
    entries = lines.select(entry).select("entry.*").where(f"batchId <= {last}")
    return sorted(unquote(row.path) for row in entries.select("path").distinct().collect())


def literal(path: str) -> str:
    """A path that Spark, which takes patterns, takes as it stands."""
    return _GLOB.sub(r"\\\1", path)
