"""Options of `tidelog run` that become the job's configuration.

The parameter of an option is PART__FIELD: a field of JobConfig, or of one of its parts.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tidelog.checkpoint.coordinator import Schedule
from tidelog.cli.store.options import add_options, option
from tidelog.cli.values import duration, to_bytes
from tidelog.materialize.schedule import MaterializeConfig
from tidelog.runtime.config import JobConfig, UnalignedConfig
from tidelog.state.key_groups import DEFAULT_KEY_GROUPS, MAX_KEY_GROUPS

R = TypeVar("R")


_OPTIONS: Final = (
    option("--parallelism", "job__parallelism", type=click.IntRange(min=1), default=1),
    option(
        "--key-groups",
        "job__key_groups",
        type=click.IntRange(min=1, max=MAX_KEY_GROUPS),
        default=DEFAULT_KEY_GROUPS,
        help="The highest parallelism there can ever be; the first checkpoint fixes it.",
    ),
    option("--checkpoint-interval", "schedule__interval", type=duration, default="1s"),
    option("--checkpoint-timeout", "schedule__timeout", type=duration, default="10m"),
    option(
        "--materialize-interval",
        "materialize__interval",
        type=duration,
        default="20s",
        help="How often each table is uploaded.",
    ),
    option(
        "--replay-target",
        "materialize__replay_target",
        type=duration,
        default="2s",
        help="Upload a table early when a restart would replay its log for longer: less makes "
        "restarts faster and uploads more often.",
    ),
    option(
        "--changelog/--no-changelog",
        "job__changelog",
        default=True,
        help="Without it every checkpoint uploads the tables' new files.",
    ),
    option(
        "--mode",
        "job__mode",
        type=click.Choice(["exactly-once", "at-least-once"]),
        default="exactly-once",
    ),
    option(
        "--unaligned",
        "unaligned__mode",
        type=click.Choice(["off", "timeout", "always"]),
        default="timeout",
        help="Whether barriers overtake records, which are then stored with the checkpoint: never, "
        "when a checkpoint takes long, or always.",
    ),
    option(
        "--aligned-timeout",
        "unaligned__timeout",
        type=duration,
        default="30s",
        help="How long a checkpoint may take before its barriers overtake.",
    ),
    option(
        "--allow-dropped-state",
        "job__allow_dropped_state",
        metavar="NAME",
        multiple=True,
        help="Drop what the checkpoint holds of this operator, which the job no longer has (or "
        "NAME/STATE: of one of its states); IT IS LOST. May be given several times.",
    ),
    option(
        "--drop-in-flight",
        "job__drop_in_flight",
        is_flag=True,
        help="Restore without the records that barriers had overtaken: THEY ARE LOST.",
    ),
    option("--table", "job__table", type=click.Choice(["rocksdb", "memory"]), default="rocksdb"),
    option(
        "--memory",
        "job__memory",
        metavar="SIZE",
        type=to_bytes,
        default="1GiB",
        help="What write buffers, caches, memtables and uploads of the whole process may take. "
        "Python itself and what user functions keep come on top.",
    ),
    option(
        "--work-dir",
        "job__work_dir",
        type=click.Path(path_type=Path),
        help="Where tables live while the job runs.",
    ),
    option(
        "--local-recovery",
        "job__local_recovery",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Keep copies of log and tables in this directory, and restore from them after a "
        "restart on this machine.",
    ),
    option(
        "--retain",
        "job__retain",
        type=click.IntRange(min=1),
        default=3,
        help="Checkpoints to keep.",
    ),
    option(
        "--tolerable-failures",
        "schedule__tolerable_failures",
        type=click.IntRange(min=0),
        default=10,
        help="Checkpoints (materializations of a subtask) in a row that may fail.",
    ),
)


def config_options(function: Callable[..., R]) -> Callable[..., R]:
    """Add the options to a command, which gets them as one argument `config`: a function that
    makes the configuration, and raises ConfigError for settings out of range.
    """

    @add_options(*_OPTIONS)
    @functools.wraps(function)
    def command(**given: Any) -> R:
        parts: dict[str, dict[str, Any]] = {}
        for name in [name for name in given if "__" in name]:
            part, _, field = name.partition("__")
            parts.setdefault(part, {})[field] = given.pop(name)
        failures = parts["schedule"]["tolerable_failures"]
        config = functools.partial(
            JobConfig,
            **parts["job"],
            schedule=Schedule(**parts["schedule"]),
            unaligned=UnalignedConfig(**parts["unaligned"]),
            materialize=MaterializeConfig(**parts["materialize"], tolerable_failures=failures),
        )
        return function(config=config, **given)

    return command
