"""Option --engine of the commands that read a whole store: a Spark job, or this machine alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from tidelog.cli.options import add_options
from tidelog.cli.spark.options import conf_option
from tidelog.cli.store.options import StoreCommand
from tidelog.engines import Engine, LocalEngine, SparkEngine, WorkerConfig
from tidelog.errors import ConfigError
from tidelog.spark.plugin.toolchain import find_java, find_spark
from tidelog.spark.session import session

_MEMORY: Final = "memory://"


on_engine = add_options(
    click.option(
        "--engine",
        type=click.Choice(["spark", "local"]),
        help="A Spark job, or plain Python on this machine.  "
        "[default: spark where it is installed]",
    ),
    click.option("--master", metavar="URL", help="Spark's master; by default local[*]."),
    conf_option,
)
"""Options --engine, --master and --conf; `conf` is a dict."""


@contextmanager
def open_engine(
    invocation: StoreCommand,
    command: str,
    name: str | None,
    master: str | None,
    conf: Mapping[str, str],
    *,
    jobs: int | None = None,
    work_dir: str | None = None,
) -> Iterator[Engine]:
    """The engine `name` for a command such as `tidelog verify`, or the one there is; raises
    ConfigError.
    """
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
        if master is not None or conf:
            raise ConfigError(
                "--master, --conf",
                expected="--engine spark with them",
                found="the local engine",
                action="leave them out, or install Spark: pip install 'tidelog[spark]'",
            )
        jobs = 1 if in_memory else jobs
        yield LocalEngine(invocation.store, invocation.effects, config, jobs)
        return
    with session(command, master, conf) as spark:
        yield SparkEngine(spark, invocation.effects, config, command)


def has_spark() -> bool:
    """Whether Spark, Java and pyspark are installed."""
    try:
        find_spark()
        find_java()
    except ConfigError:
        return False
    return find_spec("pyspark") is not None
