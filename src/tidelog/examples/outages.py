"""Outages: devices that fell silent and came back, on either engine, by the same class.

    python -m tidelog.examples.outages --engine embedded --input DIR --state out/embedded --make
    python -m tidelog.examples.outages --engine spark    --input DIR --state out/spark

Input lines are {"device": <string>, "time_ms": <integer>, "value": <number>}, in any order within
`MAX_DELAY_MS`. A silence of more than `GAP_MS` becomes one line {"device":, "number": counted from
1 per device, "silent_from_ms":, "silent_ms":, "before": the last readings, "after": the first one}.

The lines of a device come in the order of time; between devices each engine has its own order,
so compare them sorted.
"""

import asyncio
import os
import zlib
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import msgspec

from tidelog import (
    ConfigError,
    Job,
    JobArguments,
    JobRunner,
    JsonLinesSource,
    TidelogError,
    open_store,
)
from tidelog.examples import output_sink
from tidelog.examples.outages_function import INPUT, MAX_DELAY_MS, OUTPUT, Outages
from tidelog.examples.spark_check import literal
from tidelog.examples.spark_wordcount import session
from tidelog.spark import transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEVICES: Final = 24
LINES: Final = 2_400
FILES: Final = 6

_START_MS: Final = 1_767_225_600_000  # 2026-01-01 in UTC
_STEP_MS: Final = 250
_SILENT_ROUNDS: Final = 300
"""Lines, so 75 s, for which a device speaks or may be silent."""


def job(arguments: JobArguments) -> Job:
    """Outages in the readings of `--input`.

    With one subtask its result is that of the query on Spark. With several, those that end first
    tell no more of the time, and more readings may be left waiting at the end.
    """
    outages = Job("outages")
    (
        outages.source(
            JsonLinesSource(
                arguments.required_input(), include=arguments.include, follow=arguments.follow
            )
        )
        .event_time(attrgetter("time_ms"), max_delay_ms=MAX_DELAY_MS)
        .key_by(attrgetter("device"))
        .transform_with_state(Outages, time_mode="event", name="outages")
        .sink(output_sink(arguments))
    )
    return outages


def run_embedded(arguments: JobArguments, state: str) -> None:
    """Run the job to its end; its lines go to standard output."""

    async def run() -> None:
        result = await JobRunner(job(arguments), open_store(state)).run()
        if result.already_complete:
            click.echo(f"the job in {state} had finished before: nothing to do", err=True)

    asyncio.run(run())


def run_on_spark(directory: str, state: str, include: str, master: str, partitions: int) -> None:
    """Read the files there are, one per batch, and print the lines; raises ConfigError."""
    conf = {
        "spark.app.name": "tidelog outages",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(partitions),
    }
    spark = session(master, conf, stock=False)
    try:
        query = outages(spark, directory, include).writeStream.outputMode("append")
        query = query.option("checkpointLocation", state).foreachBatch(_print)
        query.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.stop()


def outages(spark: "SparkSession", directory: str, include: str = "*.jsonl") -> "DataFrame":
    """The query: outages in the files of a directory, as they appear."""
    readings = spark.readStream.schema(INPUT).options(
        mode="FAILFAST", pathGlobFilter=include, maxFilesPerTrigger=1, maxFileAge="36500d"
    )
    return transform(
        readings.json(literal(directory)),
        Outages,
        key="device",
        output_schema=OUTPUT,
        time_mode="event",
        event_time="time_ms",
        max_delay_ms=MAX_DELAY_MS,
    )


def _print(frame: "DataFrame", batch: int) -> None:
    for row in frame.collect():
        click.echo(msgspec.json.encode(row.asDict(recursive=True)))


def write_readings(directory: Path) -> None:
    """Fill a new directory with made-up readings, the same every time; raises ConfigError.

    Files sort by name as by the time of their last change.
    """
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(
            f"--input {directory}",
            expected="a directory that is empty or does not exist, for made-up readings",
            found="files in it",
            action="leave --make out, or name another directory",
        )
    directory.mkdir(parents=True, exist_ok=True)
    all_readings = list(readings())
    size = -(-len(all_readings) // FILES)
    for number in range(FILES):
        # Spark reads nothing whose name begins with a dot: a file appears whole.
        unseen = directory / f".{number:03}"
        part = all_readings[number * size : (number + 1) * size]
        unseen.write_bytes(msgspec.json.Encoder().encode_lines(part))
        os.utime(unseen, (_START_MS // 1000 + number, _START_MS // 1000 + number))
        unseen.replace(directory / f"readings-{number:03}.jsonl")


def readings() -> Iterator[dict[str, Any]]:
    """Devices speak in turns, a little out of order; some are silent for a while."""
    for number in range(LINES):
        device = _drawn(number) % DEVICES
        if _drawn(number // _SILENT_ROUNDS * DEVICES + device) % 5 == 0:
            continue
        delay = _drawn(number + LINES) % MAX_DELAY_MS
        yield {
            "device": f"device-{device:02}",
            "time_ms": _START_MS + MAX_DELAY_MS + number * _STEP_MS - delay,
            "value": _drawn(number + 2 * LINES) % 1000 / 10,
        }


def _drawn(number: int) -> int:
    return zlib.crc32(number.to_bytes(8, "big"))


@click.command()
@click.option("--engine", type=click.Choice(["embedded", "spark"]), default="embedded")
@click.option("--input", "directory", required=True, help="Directory with the readings.")
@click.option("--state", required=True, help="Where the state goes: a directory or URL.")
@click.option("--include", default="*.jsonl", show_default=True, help="Names of files to read.")
@click.option("--make", is_flag=True, help="First make up readings in --input, a new directory.")
@click.option("--master", default="local[2]", show_default=True, help="spark: Spark's master.")
@click.option("--partitions", type=click.IntRange(1), default=2, help="spark: of a new state.")
def main(
    engine: Literal["embedded", "spark"],
    directory: str,
    state: str,
    include: str,
    make: bool,
    master: str,
    partitions: int,
) -> None:
    """Print the outages in readings of devices, found by the same class on either engine.

    Files are read by name; on Spark by the time of their last change, so those have to agree.
    Started again, the query on Spark goes on with new files; the embedded job is finished.
    """
    try:
        arguments = JobArguments(input=directory, include=include)
        if make:
            write_readings(Path(directory))
        arguments.required_input()
        if engine == "embedded":
            run_embedded(arguments, state)
        else:
            run_on_spark(directory, state, include, master, partitions)
    except TidelogError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
