"""The jar of the benchmarks: a file system with the manners of S3, and the JVM's side of queries.

Invariant: as of the plug-in's own jar: what its name says is what is in it.
"""

from pathlib import Path
from typing import Final

from tidelog.spark.jar import plugin_jar

_PACKAGED: Final = Path(__file__).parent / "native"
_IN_SOURCE_TREE: Final = Path(__file__).parents[4] / "native" / "spark-benchmark" / "src" / "main"


def benchmark_jar(spark_home: Path | None = None) -> Path:
    """Its path; compiled by the first call. Raises ConfigError as `plugin_jar` does."""
    sources = _PACKAGED if _PACKAGED.is_dir() else _IN_SOURCE_TREE
    return plugin_jar(spark_home, sources=sources, notify=lambda _: None)
