"""The plug-in's jar: compiled on first use by the installed Spark's own Scala compiler, and kept.

Invariants: a cached jar is the one these sources and this Spark make, for its name is their hash
and versions; a jar appears under its name complete or not at all, so several processes may ask at
once; equal classes are an equal jar, byte for byte.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tidelog.effects import cache_directory
from tidelog.errors import ConfigError, usable_path
from tidelog.spark.plugin.toolchain import OLDEST_JAVA, Spark, find_spark, fitting_java

COMPILER_OPTIONS: Final = ("-deprecation", "-feature", "-encoding", "UTF-8")

_JVM_OPTIONS: Final = ("-Xss8m", "-XX:TieredStopAtLevel=1")
"""One compilation ends before code that was optimised further pays: half the CPU time."""

_MANIFEST: Final = b"Manifest-Version: 1.0\r\nCreated-By: tidelog\r\n\r\n"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_PACKAGED: Final = Path(__file__).parents[1] / "native"
_IN_SOURCE_TREE: Final = Path(__file__).parents[4] / "native" / "spark-state-store" / "src" / "main"
_HASH_DIGITS: Final = 16


def compile_jar(
    sources: Sequence[Path],
    classpath: Sequence[Path | str],
    target: Path,
    *,
    spark: Spark | None = None,
) -> None:
    """Compile Scala files into the jar `target`.

    `classpath` holds what the sources need besides the jars of `spark`, which is the installed one
    unless given. Raises ConfigError when there is no Spark or Java, or with the compiler's own
    messages when it refuses the sources; its warnings go to standard error.
    """
    spark = spark or find_spark()
    java = fitting_java(OLDEST_JAVA, "Spark itself")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.stem}-", dir=target.parent) as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        _compile(java, sources, [spark.classpath, *map(str, classpath)], classes)
        packed = Path(scratch) / target.name
        pack(classes, packed)
        packed.replace(target)


def pack(classes: Path, jar: Path) -> None:
    """Write a jar of everything below `classes`; equal files make equal bytes."""
    with jar.open("xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, "META-INF/MANIFEST.MF", _MANIFEST)
            for path in sorted(path for path in classes.rglob("*") if path.is_file()):
                _add(archive, path.relative_to(classes).as_posix(), path.read_bytes())
        file.flush()
        os.fsync(file.fileno())


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=_EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)


def _compile(java: Path, sources: Sequence[Path], classpath: list[str], classes: Path) -> None:
    command = [
        *(str(java), *_JVM_OPTIONS, "-cp", os.pathsep.join(classpath)),
        *("scala.tools.nsc.Main", "-usejavacp", *COMPILER_OPTIONS, "-d", str(classes)),
        *map(str, sources),
    ]
    run = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if run.returncode != 0:
        raise ConfigError(
            f"{len(sources)} Scala sources",
            expected="that the Scala compiler of this Spark accepts them",
            found=f"exit code {run.returncode} and\n{run.stdout.strip()}\n",
            action="correct the sources; if they are those of the plug-in, "
            "use a release of tidelog that supports this Spark",
        )
    if run.stdout:
        sys.stderr.write(run.stdout)  # warnings


def plugin_jar(
    spark_home: Path | str | None = None,
    *,
    sources: Path | None = None,
    notify: Callable[[str], None] | None = None,
) -> Path:
    """Path of the plug-in's jar for a Spark, compiled if this is the first call for it.

    `spark_home` is the installation, by default the one pyspark would start; `sources` the
    directory that holds `scala/` and the folders of single Spark versions, by default the
    plug-in's own. `notify` gets a line before a compilation, by default on standard error. Jars
    are kept below $TIDELOG_CACHE, else the user's cache directory. Raises ConfigError when there
    is no supported Spark or no Java, when the sources do not compile, or when that directory
    cannot be written to.
    """
    spark = find_spark(spark_home)
    files, target = _cached(spark, sources or _sources_root())
    if not target.is_file():
        say = notify or partial(print, file=sys.stderr, flush=True)
        say(f"tidelog: compiling the plug-in for Spark {spark.version} once ...")
        with usable_path(
            f"directory {target.parent} for compiled jars",
            expected="one that can be written to",
            action="set TIDELOG_CACHE to another directory",
        ):
            compile_jar(files, [], target, spark=spark)
        say(f"tidelog: {target}")
    return target


def cached_jar(spark: Spark) -> Path | None:
    """The plug-in's jar for a Spark if it is compiled already."""
    _, target = _cached(spark, _sources_root())
    return target if target.is_file() else None


def plugin_sources(spark: Spark, root: Path) -> list[Path]:
    """The Scala files for one Spark: those for all versions and those for its minor version."""
    shared, of_version = root / "scala", root / f"spark-{spark.minor}" / "scala"
    files = sorted([*shared.rglob("*.scala"), *of_version.rglob("*.scala")])
    if not files:
        raise ConfigError(
            f"sources of the plug-in at {root}",
            expected=f"Scala files for Spark {spark.version}",
            found="none",
            action="install tidelog again",
        )
    return files


def _sources_root() -> Path:
    return _PACKAGED if _PACKAGED.is_dir() else _IN_SOURCE_TREE


def _cached(spark: Spark, root: Path) -> tuple[list[Path], Path]:
    """The sources below `root` for a Spark, and where their jar is kept."""
    files = plugin_sources(spark, root)
    digest = hashlib.sha256("\0".join(COMPILER_OPTIONS).encode())
    for path in files:
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    key = digest.hexdigest()[:_HASH_DIGITS]
    name = f"tidelog-spark-{spark.version}-scala-{spark.scala}-{key}.jar"
    return files, cache_directory() / "spark" / name
