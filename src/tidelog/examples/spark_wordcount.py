"""Word count on Spark: the words of a directory tree, counted as files arrive.

    python -m tidelog.examples.spark_wordcount --input DIR --checkpoint URL

The counts are the query's state. At its end, or with --verify whenever no query runs, they are
read back with Spark's state data source and compared with a batch count of the same files.

Words are what `str.split` makes of a line. Files must appear whole: write them elsewhere and
rename. As everywhere in Spark, names that begin with `_` or `.` are not seen.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.errors import ConfigError, TidelogError
from tidelog.examples.spark_check import literal, report
from tidelog.spark import configure
from tidelog.spark.settings import FILE_MANAGER, FIXED, PLUGINS
from tidelog.spark.toolchain import SUPPORTED_TEXT, find_java, find_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

SEPARATORS: Final = (
    r"[\x09-\x0d\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
)
"""What `str.split` splits at, as a pattern; Java's own classes of white space are others."""

_SEQUEL: Final = re.compile(r"\n+(?=JVM stacktrace|=== Streaming Query|Driver stacktrace)")


class _Misfit(click.ClickException):
    """Nothing was started: something is missing or set wrong."""

    exit_code = 2


def session(master: str, conf: dict[str, str], *, stock: bool) -> "SparkSession":
    """A session with the plug-in, or with Spark's RocksDB state store alone; raises ConfigError."""
    home = find_spark().home
    find_java()
    if find_spec("pyspark") is None:
        raise ConfigError(
            "module pyspark",
            expected=f"pyspark {SUPPORTED_TEXT} in this Python",
            found=f"only the Spark at {home}",
            action="pip install 'tidelog[spark]'",
        )
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("SPARK_HOME", str(home))  # where local-cluster finds its workers
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tidelog word count").master(master)
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    own = {key: FIXED[key] for key in FIXED.keys() - {PLUGINS, FILE_MANAGER}} if stock else {}
    for key, value in {**quiet, **own, **conf}.items():
        builder = builder.config(key, value)
    return (builder if stock else configure(builder)).getOrCreate()


def start(
    spark: "SparkSession",
    checkpoint: str,
    *,
    directory: str,
    include: str,
    files_per_batch: int,
    once: bool,
    interval: str,
) -> "StreamingQuery":
    """Start the query: `once` over the files there are, else a batch every `interval`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    lines = spark.readStream.format("text").options(
        recursiveFileLookup=True,
        pathGlobFilter=include,
        maxFilesPerTrigger=files_per_batch,
        maxFileAge="36500d",  # by default an old file that arrives late is passed over
    )
    words = lines.load(literal(directory)).select(f.explode(f.split("value", SEPARATORS)))
    counts = words.toDF("word").where("word <> ''").groupBy("word").count()
    sink = counts.writeStream.format("noop").outputMode("update")
    sink = sink.option("checkpointLocation", checkpoint)
    if once:
        return sink.trigger(availableNow=True).start()
    return sink.trigger(processingTime=interval).start()


def watch(query: "StreamingQuery") -> None:
    """Print a line per batch until the query ends or Ctrl-C stops it."""
    printed = -1
    ended: bool | None = False
    while not ended:
        try:
            ended = query.awaitTermination(1)
        except KeyboardInterrupt:
            query.stop()
            ended = True
        for progress in query.recentProgress:
            # An idle query reports too, with the number of a batch that has not run.
            if progress.batchId > printed and "addBatch" in progress.durationMs:
                printed = progress.batchId
                click.echo(_line(progress))


def _line(progress: "StreamingQueryProgress") -> str:
    known = progress.stateOperators[0].numRowsTotal
    took = progress.durationMs["triggerExecution"]
    lines = progress.numInputRows
    return f"batch {progress.batchId}: {lines:,} lines, {known:,} words known, {took} ms"


def _pairs(context: object, parameter: object, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if not all(key and equals for key, equals, _ in pairs):
        raise click.BadParameter("write it as key=value")
    return {key: value for key, _, value in pairs}


@click.command()
@click.option("--input", "directory", help="Directory to count; needed unless --verify.")
@click.option("--checkpoint", required=True, help="Where the state goes: a directory or URL.")
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@click.option("--once/--follow", default=True, help="End with the files there are, or go on.")
@click.option("--interval", default="1 second", show_default=True, help="--follow: a batch every.")
@click.option("--include", default="*", show_default=True, help="Names of files to count.")
@click.option("--files-per-batch", type=click.IntRange(1), default=100, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=8, show_default=True)
@click.option("--verify", is_flag=True, help="Run no query: only compare what is there.")
@click.option("--top", type=click.IntRange(0), default=0, help="Show the N most frequent words.")
@click.option("--stock", is_flag=True, help="Spark's own RocksDB state store, without tidelog.")
@click.option("--conf", multiple=True, callback=_pairs, help="A Spark setting, as key=value.")
def main(
    checkpoint: str,
    master: str,
    partitions: int,
    verify: bool,
    top: int,
    stock: bool,
    conf: dict[str, str],
    **query: Any,
) -> None:
    """Count the words of a directory tree with Spark and check the result.

    Start it again with the same arguments after a crash: it goes on with the batch that was not
    committed. --partitions counts while the checkpoint is new; then it is fixed.
    """
    if query["directory"] is None and not verify:
        raise click.UsageError("--input is missing")
    conf = {"spark.sql.shuffle.partitions": str(partitions), **conf}
    with _reported():
        spark = session(master, conf, stock=stock)
        try:
            if not verify:
                watch(start(spark, checkpoint, **query))
            code = report(spark, checkpoint, top)
        finally:
            spark.stop()
    click.get_current_context().exit(code)


@contextmanager
def _reported() -> Iterator[None]:
    """Errors as a message, without the stack of the JVM and the plan of the query."""
    try:
        yield
    except TidelogError as error:
        raise _Misfit(str(error)) from error
    except Exception as error:
        # Not by their classes: pyspark may be what is missing.
        if type(error).__module__.partition(".")[0] not in {"pyspark", "py4j"}:
            raise
        java = getattr(error, "java_exception", None)
        message = str(java.getMessage() if java else error)
        raise click.ClickException(_SEQUEL.split(message)[0]) from error


if __name__ == "__main__":
    main()
