"""What a machine needs for the Spark benchmarks.

Invariant: nothing here imports pyspark or starts a JVM for longer than it takes to ask its version.
"""

from functools import cache
from importlib.util import find_spec

from tidelog.errors import ConfigError
from tidelog.spark.plugin.toolchain import OLDEST_JAVA, find_java, find_spark, java_version


@cache
def missing(variant: str) -> str | None:
    """Why no application can be started here, and what to install; None if one can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed; pip install 'tidelog[spark]'"
    try:
        find_spark()
        version = java_version(find_java())
    except ConfigError as error:
        return str(error)
    if version < OLDEST_JAVA:
        return f"Java {version} is too old; install {OLDEST_JAVA} or newer and set JAVA_HOME to it"
    return None
