"""Options of `tidelog run` that become the job's configuration."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click

from tidelog.checkpoint.coordinator import Schedule
from tidelog.cli.durations import duration
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import JobConfig, Mode, UnalignedConfig, UnalignedMode

R = TypeVar("R")

_OPTIONS: Final = (
    click.option("--parallelism", type=click.IntRange(min=1), default=1, show_default=True),
    click.option("--checkpoint-interval", type=duration, default="1s", show_default=True),
    click.option("--checkpoint-timeout", type=duration, default="10m", show_default=True),
    click.option(
        "--materialize-interval",
        type=duration,
        default="20s",
        show_default=True,
        help="How often each table is uploaded.",
    ),
    click.option(
        "--replay-target",
        type=duration,
        default="2s",
        show_default=True,
        help="Upload a table early when a restart would replay its log for longer: less makes "
        "restarts faster and uploads more often.",
    ),
    click.option(
        "--changelog/--no-changelog",
        default=True,
        show_default=True,
        help="Without it every checkpoint uploads the tables' new files.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["exactly-once", "at-least-once"]),
        default="exactly-once",
        show_default=True,
    ),
    click.option(
        "--unaligned",
        type=click.Choice(["off", "timeout", "always"]),
        default="timeout",
        show_default=True,
        help="Whether barriers overtake records, which are then stored with the checkpoint: never, "
        "when a checkpoint takes long, or always.",
    ),
    click.option(
        "--aligned-timeout",
        type=duration,
        default="30s",
        show_default=True,
        help="How long a checkpoint may take before its barriers overtake.",
    ),
    click.option(
        "--drop-in-flight",
        is_flag=True,
        help="Restore without the records that barriers had overtaken: THEY ARE LOST.",
    ),
    click.option(
        "--table", type=click.Choice(["rocksdb", "memory"]), default="rocksdb", show_default=True
    ),
    click.option(
        "--work-dir", type=click.Path(path_type=Path), help="Where tables live while the job runs."
    ),
    click.option(
        "--local-recovery",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Keep copies of log and tables in this directory, and restore from them after a "
        "restart on this machine.",
    ),
    click.option(
        "--retain",
        type=click.IntRange(min=1),
        default=3,
        show_default=True,
        help="Checkpoints to keep.",
    ),
    click.option(
        "--tolerable-failures",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        help="Checkpoints (materializations of a subtask) in a row that may fail.",
    ),
)


def config_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add the options to a command, which gets them as one argument `config`: a function that
    makes the configuration, and raises ConfigError for settings out of range.
    """

    @functools.wraps(function)
    def command(
        parallelism: int,
        checkpoint_interval: float,
        checkpoint_timeout: float,
        materialize_interval: float,
        replay_target: float,
        changelog: bool,
        mode: Mode,
        unaligned: UnalignedMode,
        aligned_timeout: float,
        drop_in_flight: bool,
        table: Literal["rocksdb", "memory"],
        work_dir: Path | None,
        local_recovery: Path | None,
        retain: int,
        tolerable_failures: int,
        **others: Any,
    ) -> R:
        schedule = Schedule(
            checkpoint_interval, checkpoint_timeout, tolerable_failures=tolerable_failures
        )
        materialize = MaterializeConfig(
            materialize_interval, replay_target=replay_target, tolerable_failures=tolerable_failures
        )
        config = functools.partial(
            JobConfig,
            parallelism=parallelism,
            mode=mode,
            changelog=changelog,
            table=table,
            work_dir=work_dir,
            local_recovery=local_recovery,
            retain=retain,
            drop_in_flight=drop_in_flight,
            schedule=schedule,
            unaligned=UnalignedConfig(unaligned, aligned_timeout),
            materialize=materialize,
        )
        return function(config=config, **others)

    decorated: Callable[..., R] = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
