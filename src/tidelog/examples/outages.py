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
from operator import attrgetter
from pathlib import Path
from typing import Literal

import click

from tidelog.connectors.files.lines import JsonLines
from tidelog.effects import Effects
from tidelog.errors import TidelogError
from tidelog.examples.outages_function import MAX_DELAY_MS, Outages
from tidelog.examples.outages_made_up import write_readings
from tidelog.examples.outages_on_spark import run_on_spark
from tidelog.examples.output import output_sink
from tidelog.runtime.arguments import JobArguments
from tidelog.runtime.graph import Job
from tidelog.runtime.runner import JobRunner
from tidelog.storage.open import open_store


def job(arguments: JobArguments) -> Job:
    """Outages in the readings of `--input`.

    With one subtask its result is that of the query on Spark. With several, those that end first
    tell no more of the time, and more readings may be left waiting at the end.
    """
    outages = Job("outages")
    (
        outages.source(
            JsonLines(
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
        effects = Effects()
        result = await JobRunner(job(arguments), open_store(state, effects), effects=effects).run()
        if result.already_complete:
            click.echo(f"the job in {state} had finished before: nothing to do", err=True)

    asyncio.run(run())


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
