"""`scale` of the simulator: what a job of thousands of subtasks would do."""

from typing import Any

import click

from tests.simulator.scale.bursts import Burst, bursts
from tests.simulator.scale.pressure import Duration, durations
from tests.simulator.scale.segments import Checkpoints, checkpoints
from tests.simulator.scale.shape import Shape
from tidelog.cli.output import Output
from tidelog.cli.store.options import EXIT_USAGE
from tidelog.cli.values import duration, size
from tidelog.errors import ConfigError

_SHAPE = Shape()


@click.command("scale")
@click.option("--tasks", default=_SHAPE.tasks, show_default=True, type=click.IntRange(2))
@click.option(
    "--subtasks",
    default=_SHAPE.subtasks,
    show_default=True,
    type=click.IntRange(1),
    help="Of each task.",
)
@click.option(
    "--processes",
    default=_SHAPE.processes,
    show_default=True,
    type=click.IntRange(1),
    help="That the subtasks are spread over.",
)
@click.option(
    "--log-rate",
    "log_bytes_per_s",
    default=_SHAPE.log_bytes_per_s,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Bytes per second that a subtask logs.",
)
@click.option(
    "--table",
    "table_bytes",
    default=_SHAPE.table_bytes,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Bytes of new table files of a subtask per materialization.",
)
@click.option(
    "--bandwidth",
    default=_SHAPE.bandwidth,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Bytes per second of a process to the store.",
)
@click.option("--latency", default="30ms", show_default=True, type=duration, help="Of a request.")
@click.option("--interval", default="10s", show_default=True, type=duration)
@click.option("--materialize-interval", default="10m", show_default=True, type=duration)
@click.option(
    "--queued",
    default="59s",
    show_default=True,
    type=duration,
    help="Back-pressure: what lies in front of a barrier in a task's inputs takes this long.",
)
@click.option(
    "--stuck",
    default="30s",
    show_default=True,
    type=duration,
    help="Back-pressure: how long a barrier waits for room in a task's outputs.",
)
@click.option("--unaligned-timeout", default="60s", show_default=True, type=duration)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; see docs/reference/cli-json.md.")
def command(as_json: bool, **figures: Any) -> None:
    """Model a job of thousands of subtasks on the real schedulers, in virtual time.

    Prints objects per checkpoint, the peak of table uploads against their mean, and how
    long a checkpoint takes under back-pressure for each way to align.
    """
    output = Output(as_json=as_json)
    try:
        shape = Shape(**figures)
    except ConfigError as error:
        output.error(error)
        click.get_current_context().exit(EXIT_USAGE)
    written, uploads, lasting = checkpoints(shape), bursts(shape), durations(shape)
    if as_json:
        output.document(_fields(shape, written, uploads, lasting))
    else:
        _print(output, shape, written, uploads, lasting)


def _fields(
    shape: Shape, written: Checkpoints, uploads: list[Burst], lasting: list[Duration]
) -> dict[str, Any]:
    return {
        "shape": shape,
        "checkpoint": written,
        "materializations": uploads,
        "back_pressure": lasting,
    }


def _print(
    output: Output,
    shape: Shape,
    written: Checkpoints,
    uploads: list[Burst],
    lasting: list[Duration],
) -> None:
    output.line(
        f"{shape.tasks} tasks of {shape.subtasks} subtasks on {shape.processes} processes, "
        f"a checkpoint every {shape.interval:g} s"
    )
    output.line()
    output.table(
        ["objects per checkpoint", "with a file per subtask", "durable after", "mean segment"],
        [
            [
                f"{written.objects:.0f}",
                written.objects_unpacked,
                f"{written.seconds:.3f} s",
                size(round(written.segment_bytes)),
            ]
        ],
    )
    output.line()
    output.table(
        ["materializations", "mean per second", "peak per second", "peak / mean"],
        [
            [
                b.variant,
                size(round(b.mean)),
                size(round(b.peak)),
                f"{b.peak / b.mean:.2f}",
            ]
            for b in uploads
        ],
    )
    output.line()
    output.line(
        f"back-pressure: {shape.queued:g} s of records in front of every barrier, {shape.stuck:g} "
        f"s until it is out, unaligned after {shape.unaligned_timeout:g} s"
    )
    output.table(
        ["checkpoint", "duration", "tasks that overtook"],
        [[d.variant, f"{d.seconds:.1f} s", d.overtook] for d in lasting],
    )
