"""`tidelog spark savepoint`: a query that is a job returns to one machine."""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from tidelog.cli.exit_codes import EXIT_OK
from tidelog.cli.options import (
    CONF,
    add_options,
    declared,
    encryption_key_option,
    endpoint_option,
    options_of,
)
from tidelog.cli.output import Output
from tidelog.cli.store.options import on_this_machine
from tidelog.errors import RestoreError
from tidelog.options.units import plural
from tidelog.storage.open import StoreAccess


@dataclass(frozen=True, slots=True)
class ReturnOptions:
    """Where the savepoint goes, and which Spark reads the checkpoint."""

    to: str = declared(
        "--to",
        required=True,
        metavar="URL@NAME",
        help="The store of the job: that which it moved from, or an empty one; and a new name.",
    )
    parallelism: int | None = declared(
        "--parallelism",
        type=click.IntRange(min=1),
        help="Subtasks of each operator in the savepoint, written at the same time; the job may "
        "have another number.  [default: the cores of Spark]",
    )
    without_positions: bool = declared(
        "--without-positions",
        is_flag=True,
        help="The state of operators alone, as for a query over data frames of its own: the job "
        "then reads its sources from their start.",
    )
    master: str | None = declared(
        "--master", metavar="URL", help="Spark's master; by default local[*]."
    )
    conf: Mapping[str, str] = declared("--conf", **CONF)


@click.command("savepoint")
@click.argument("checkpoint")
@options_of("options", ReturnOptions)
@add_options(endpoint_option, encryption_key_option)
@on_this_machine
def savepoint_command(
    output: Output,
    /,
    checkpoint: str,
    options: ReturnOptions,
    endpoint: str | None,
    encryption_key: str | None,
) -> int:
    """Make a savepoint of the stopped query at CHECKPOINT, so that its job runs embedded again.

    The query is one that `tidelog spark run` or run_operator has started. Afterwards a start of it
    is refused, and `tidelog run JOB --store URL` goes on from the savepoint.
    """
    from tidelog.spark.failures import translated  # noqa: PLC0415
    from tidelog.spark.handover.back import bring_back  # noqa: PLC0415  # not needed for --help
    from tidelog.spark.plugin.settings import with_plugin  # noqa: PLC0415
    from tidelog.spark.session import session  # noqa: PLC0415

    conf = with_plugin(options.conf)
    access = StoreAccess(endpoint, encryption_key)
    with (
        session("tidelog spark savepoint", options.master, conf, otherwise="") as spark,
        translated(
            RestoreError,
            f"the checkpoint {checkpoint}",
            expected="Spark to read the state of its last batch",
            action="see what Spark says; the query must be stopped, and its checkpoint whole",
        ),
    ):
        savepoint = bring_back(
            spark,
            checkpoint,
            options.to,
            access=access,
            parallelism=options.parallelism,
            without_positions=options.without_positions,
        )
    subtasks = sum(len(operator.subtasks) for operator in savepoint.operators)
    url = options.to.rpartition("@")[0]
    output.show(
        {"job": savepoint.job, "store": url, "name": savepoint.name, "checkpoint": savepoint.slot},
        f"savepoint {savepoint.name} of job {savepoint.job}, with "
        f"{plural(len(savepoint.operators), 'operator')} in {plural(subtasks, 'subtask')}",
        f"go on: tidelog run JOB --store {url}",
    )
    return EXIT_OK
