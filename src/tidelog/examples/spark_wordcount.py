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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from tidelog import TidelogError
from tidelog.examples.spark_check import literal, report
from tidelog.spark import configure, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_RARE: Final = r"[\u1680-\u3000&&[\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]]"
SEPARATORS: Final = rf"[\t\n\x0b\f\r\x1c\x1d\x1e\x1f \x85\xa0{_RARE}]+"
"""What `str.split` splits at, as a pattern of Java, whose own classes of white space are others.

Java looks up single characters below 256 in one table, but tries ranges one by one: written as
ranges, these separators take a third of the query's time.
"""

_STATE_STORE: Final = "spark.sql.streaming.stateStore"
_QUICK_AND_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Half the CPU of a run of a minute or two goes into the second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Or each of up to ten thousand files that are compared is looked at by a task of its own.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    # Or a task takes no more than 32 files, however small they are, and combines few counts.
    "spark.sql.files.openCostInBytes": "64k",
}
_STOCK: Final = {
    f"{_STATE_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE_STORE}.checkpointFormatVersion": "2",
}
"""Spark's RocksDB state store with its own changelogs, to compare with."""
_SEQUEL: Final = re.compile(r"\n+(?=JVM stacktrace|=== Streaming Query|Driver stacktrace)")
_ABORTED: Final = 130
"""What shells say of a process that Ctrl-C has ended."""


class _WrongArguments(click.ClickException):
    """Nothing was started: something is missing or set wrong."""

    exit_code = 2


def session(master: str, conf: dict[str, str], *, stock: bool) -> "SparkSession":
    """A session with the plug-in, or with Spark's RocksDB state store alone; raises ConfigError."""
    home = require_pyspark().home
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("SPARK_HOME", str(home))  # where local-cluster finds its workers
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tidelog word count").master(master)
    for key, value in {**_QUICK_AND_QUIET, **(_STOCK if stock else {}), **conf}.items():
        builder = builder.config(key, value)
    return (builder if stock else configure(builder)).getOrCreate()


def start(
    spark: "SparkSession",
    checkpoint: str,
    *,
    directory: str,
    include: str,
    bytes_per_batch: int,
    files_per_batch: int | None,
    once: bool,
    interval: str,
) -> "StreamingQuery":
    """Start the query: `once` over the files there are, else a batch every `interval`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    # A batch costs about a second whatever is in it, so small files go together.
    limit = {"maxBytesPerTrigger": bytes_per_batch}
    if files_per_batch is not None:
        limit = {"maxFilesPerTrigger": files_per_batch}
    lines = spark.readStream.format("text").options(
        **limit,
        recursiveFileLookup=True,
        pathGlobFilter=include,
        maxFileAge="36500d",  # by default an old file that arrives late is passed over
    )
    words = lines.load(literal(directory)).select(f.explode(f.split("value", SEPARATORS)))
    counts = words.toDF("word").where("word <> ''").groupBy("word").count()
    sink = counts.writeStream.format("noop").outputMode("update")
    sink = sink.option("checkpointLocation", checkpoint)
    if once:
        return sink.trigger(availableNow=True).start()
    return sink.trigger(processingTime=interval).start()


def watch(
    spark: "SparkSession", query: "StreamingQuery", interrupted: Event, batches: int | None
) -> None:
    """Print a line per batch until the query ends; so many batches or an interruption stop it."""
    printed, count = -1, 0
    is_finished: bool | None = False
    while not is_finished:
        if interrupted.is_set() or (batches is not None and count >= batches):
            _stop_quietly(spark, query)
        is_finished = query.awaitTermination(1)
        for progress in query.recentProgress:
            # An idle query reports too, with the number of a batch that has not run.
            if progress.batchId > printed and "addBatch" in progress.durationMs:
                printed, count = progress.batchId, count + 1
                click.echo(_line(progress))


def _stop_quietly(spark: "SparkSession", query: "StreamingQuery") -> None:
    """Spark calls it an error that the batch which runs is given up; here it was asked for.

    Its log stays off, because the tasks of that batch end later. What else fails is an exception.
    """
    spark.sparkContext.setLogLevel("OFF")
    query.stop()


def _abort() -> NoReturn:
    """End this process, and with it the JVM, which is not to log what that breaks off."""
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415

        SparkSession.active().sparkContext.setLogLevel("OFF")
    finally:  # whether there is a session or not
        os._exit(_ABORTED)


def _aside(work: Callable[[Event], int]) -> int:
    """Do the work in a thread, and tell it of Ctrl-C by the event; a second one aborts the process.

    In the main thread Ctrl-C would break into whatever py4j reads from the JVM at the moment, and
    pyspark puts a handler there that calls the JVM in the midst of it.
    """
    interrupted = Event()
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(work, interrupted)
        try:
            return result.result()
        except KeyboardInterrupt:
            interrupted.set()
        try:
            # Within, or a second Ctrl-C right after the message would be no abort.
            click.echo("stopping; Ctrl-C again to abort", err=True)
            return result.result()
        except KeyboardInterrupt:
            _abort()


def _line(progress: "StreamingQueryProgress") -> str:
    words = progress.stateOperators[0].numRowsTotal
    duration_ms = progress.durationMs["triggerExecution"]
    lines = progress.numInputRows
    return f"batch {progress.batchId}: {lines:,} lines, {words:,} words known, {duration_ms} ms"


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
@click.option("--bytes-per-batch", type=click.IntRange(1), default=16 << 20, show_default=True)
@click.option("--files-per-batch", type=click.IntRange(1), help="Instead of --bytes-per-batch.")
@click.option("--batches", type=click.IntRange(1), help="Stop after so many; the next run goes on.")
@click.option("--partitions", type=click.IntRange(1), default=8, show_default=True)
@click.option("--verify", is_flag=True, help="Run no query: only compare what is there.")
@click.option("--top", type=click.IntRange(0), default=0, help="Show the N most frequent words.")
@click.option("--stock", is_flag=True, help="Spark's own RocksDB state store, without tidelog.")
@click.option("--conf", multiple=True, callback=_pairs, help="A Spark setting, as key=value.")
def main(
    checkpoint: str,
    master: str,
    batches: int | None,
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

    def run(interrupted: Event) -> int:
        spark = session(master, conf, stock=stock)
        try:
            if not verify:
                watch(spark, start(spark, checkpoint, **query), interrupted, batches)
            return report(spark, checkpoint, top)
        finally:
            spark.stop()

    with _reported():
        code = _aside(run)
    click.get_current_context().exit(code)


@contextmanager
def _reported() -> Iterator[None]:
    """Errors as a message, without the stack of the JVM and the plan of the query."""
    try:
        yield
    except TidelogError as error:
        raise _WrongArguments(str(error)) from error
    except Exception as error:
        # Not by their classes: pyspark may be what is missing.
        if type(error).__module__.partition(".")[0] not in {"pyspark", "py4j"}:
            raise
        java = getattr(error, "java_exception", None)
        message = str(java.getMessage() if java else error)
        raise click.ClickException(_SEQUEL.split(message)[0]) from error


if __name__ == "__main__":
    main()
