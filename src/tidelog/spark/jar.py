"""The plug-in's jar: compiled on first use by the installed Spark's own Scala compiler, and kept.

Invariants: a cached jar is the one these sources and this Spark make, for its name is their hash
and versions; several processes may ask at once, and each gets a complete jar.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError
from tidelog.spark.compiler import COMPILER_OPTIONS, compile_jar
from tidelog.spark.toolchain import Spark, find_spark

__all__ = ["cache_directory", "cached_jar", "compile_jar", "plugin_jar", "plugin_sources"]

CACHE_VARIABLE: Final = "TIDELOG_CACHE"

_PACKAGED: Final = Path(__file__).parent / "native"
_IN_SOURCE_TREE: Final = Path(__file__).parents[3] / "native" / "spark-state-store" / "src" / "main"
_HASH_DIGITS: Final = 16


def plugin_jar(
    spark_home: Path | None = None,
    *,
    sources: Path | None = None,
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Path of the plug-in's jar for a Spark, compiled if this is the first call for it.

    `spark_home` is the installation, by default the one pyspark would start; `sources` the
    directory that holds `scala/` and the folders of single Spark versions, by default the
    plug-in's own. `notify` gets a line before a compilation, by default on standard error. Jars
    are kept below $TIDELOG_CACHE, else the user's cache directory. Raises ConfigError when there
    is no supported Spark or no Java, or when the sources do not compile.
    """
    spark = find_spark(spark_home)
    root = sources or _sources_root()
    files = plugin_sources(spark, root)
    target = _cached_path(spark, root, files)
    if not target.is_file():
        say = notify or _to_standard_error
        say(f"tidelog: compiling the plug-in for Spark {spark.version} once ...")
        compile_jar(files, [], target, spark=spark)
        say(f"tidelog: {target}")
    return target


def cached_jar(spark: Spark) -> Path | None:
    """The plug-in's jar for a Spark if it is compiled already."""
    root = _sources_root()
    target = _cached_path(spark, root, plugin_sources(spark, root))
    return target if target.is_file() else None


def plugin_sources(spark: Spark, root: Path) -> list[Path]:
    """The Scala files for one Spark: those for all versions and those for its minor version."""
    folders = [root / "scala", root / f"spark-{spark.minor}" / "scala"]
    files = sorted(path for folder in folders for path in folder.rglob("*.scala"))
    if not files:
        raise ConfigError(
            f"sources of the plug-in at {root}",
            expected=f"Scala files for Spark {spark.version}",
            found="none",
            action="install tidelog again",
        )
    return files


def cache_directory() -> Path:
    """Where compiled jars are kept: $TIDELOG_CACHE, else `tidelog` in the user's cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "tidelog"


def _sources_root() -> Path:
    return _PACKAGED if _PACKAGED.is_dir() else _IN_SOURCE_TREE


def _cached_path(spark: Spark, root: Path, files: Sequence[Path]) -> Path:
    digest = hashlib.sha256("\0".join(COMPILER_OPTIONS).encode())
    for path in files:
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    key = digest.hexdigest()[:_HASH_DIGITS]
    name = f"tidelog-spark-{spark.version}-scala-{spark.scala}-{key}.jar"
    return cache_directory() / "spark" / name


def _to_standard_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
