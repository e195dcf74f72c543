"""Option --engine of the commands that read a whole store: a Spark job, or this machine alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from tidelog.cli.options import CONF, declared
from tidelog.cli.store.options import StoreCommand
from tidelog.engines import Engine, LocalEngine, SparkEngine, WorkerConfig
from tidelog.errors import ConfigError
from tidelog.spark.plugin.toolchain import require_pyspark
from tidelog.spark.session import session

_MEMORY: Final = "memory://"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    name: str | None = declared(
        "--engine",
        type=click.Choice(["spark", "local"]),
        help="A Spark job, or plain Python on this machine.  "
        "[default: spark where it is installed]",
    )
    master: str | None = declared(
        "--master", metavar="URL", help="Spark's master; by default local[*]."
    )
    conf: Mapping[str, str] = declared("--conf", **CONF)


@contextmanager
def open_engine(
    invocation: StoreCommand,
    command: str,
    options: EngineOptions,
    *,
    jobs: int | None = None,
    work_dir: str | None = None,
) -> Iterator[Engine]:
    """The engine for a command such as `tidelog verify`; raises ConfigError."""
    name = options.name
    directory = None if work_dir is None else str(Path(work_dir).absolute())
    config = WorkerConfig(invocation.store.url, invocation.access, directory)
    in_memory = config.url.startswith(_MEMORY)
    if name == "spark" and in_memory:
        raise ConfigError(
            f"store {config.url}",
            expected="a store that other processes can open",
            found="one in the memory of this process",
            action="use --engine local",
        )
    if name == "local" or (name is None and (in_memory or not has_spark())):
        if options.master is not None or options.conf:
            raise ConfigError(
                "--master, --conf",
                expected="--engine spark with them",
                found="the local engine",
                action="leave them out, or install Spark: pip install 'tidelog[spark]'",
            )
        jobs = 1 if in_memory else jobs
        yield LocalEngine(invocation.store, invocation.effects, config, jobs)
        return
    if jobs is not None:
        raise ConfigError(
            "--jobs",
            expected="--engine local with it",
            found="the engine of Spark",
            action="add --engine local, or leave it out",
        )
    with session(command, options.master, options.conf) as spark:
        yield SparkEngine(spark, invocation.effects, config, command)


def has_spark() -> bool:
    """Whether Spark, Java and pyspark are installed."""
    try:
        require_pyspark()
    except ConfigError:
        return False
    return True
