"""The Spark that a verification runs on: the one that is active, else one of its own.

Invariant: a session that was found is left as it was; one that was started is stopped in the end.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tidelog.errors import ConfigError
from tidelog.spark.settings import configure
from tidelog.spark.toolchain import SUPPORTED_TEXT, find_java, find_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_QUIET: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


@contextmanager
def session(
    master: str | None, conf: Mapping[str, str], *, plugin: bool
) -> Iterator["SparkSession"]:
    """A session on `master`, None: on what Spark's own settings say, else on this machine.

    With `plugin` it reads the state of queries that use tidelog's plug-in. Raises ConfigError when
    Spark or Java is missing.
    """
    _require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName("tidelog verify")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit, which knows the master
    if master is not None or not submitted:
        builder = builder.master(master or LOCAL)
    if (master or LOCAL).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in {**_QUIET, **conf}.items():
        builder = builder.config(key, value)
    started = (configure(builder) if plugin else builder).getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    try:
        yield started
    finally:
        started.stop()


def _require_spark() -> None:
    try:
        home = find_spark().home
        find_java()
        if find_spec("pyspark") is None:
            raise ConfigError(
                "module pyspark",
                expected=f"pyspark {SUPPORTED_TEXT} in this Python",
                found=f"only the Spark at {home}",
                action="pip install 'tidelog[spark]'",
            )
    except ConfigError as error:
        raise ConfigError(
            error.what,
            expected=error.expected,
            found=error.found,
            action=f"{error.action}; or do without Spark, with --engine local",
        ) from error
