"""Scala to a jar, with nothing but an installed Spark and a Java.

Invariants: a jar appears under its name complete or not at all, whoever else writes it at the same
time; equal classes are an equal jar, byte for byte.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError
from tidelog.spark.toolchain import OLDEST_JAVA, Spark, find_java, find_spark, java_version

COMPILER_OPTIONS: Final = ("-deprecation", "-feature", "-encoding", "UTF-8")

_STACK: Final = "-Xss8m"
_MANIFEST: Final = b"Manifest-Version: 1.0\r\nCreated-By: tidelog\r\n\r\n"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def compile_jar(
    sources: Sequence[Path],
    classpath: Sequence[Path | str],
    target: Path,
    *,
    spark: Spark | None = None,
) -> Path:
    """Compile Scala files into the jar `target` and return its path.

    `classpath` holds what the sources need besides the jars of `spark`, which is the installed one
    unless given. Raises ConfigError when there is no Spark or Java, or with the compiler's own
    messages when it refuses the sources; its warnings go to standard error.
    """
    spark = spark or find_spark()
    java = _fitting_java()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.stem}-", dir=target.parent) as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        _compile(java, sources, [spark.classpath, *map(str, classpath)], classes)
        packed = Path(scratch) / target.name
        pack(classes, packed)
        packed.replace(target)
    return target


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
        *(str(java), _STACK, "-cp", os.pathsep.join(classpath)),
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


def _fitting_java() -> Path:
    java = find_java()
    version = java_version(java)
    if version < OLDEST_JAVA:
        raise ConfigError(
            f"Java at {java}",
            expected=f"version {OLDEST_JAVA} or newer, as Spark itself needs",
            found=f"version {version}",
            action="install a newer one and set JAVA_HOME to it",
        )
    return java
