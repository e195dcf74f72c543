"""What is installed on this machine: a Spark with its own Scala compiler, and a Java.

Invariants: nothing here imports pyspark or starts a JVM except `java_version`; a Spark that is
found is a supported one, or the error says which versions are.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidelog.errors import ConfigError
from tidelog.options.units import plural

SUPPORTED: Final = ((4, 1), (4, 2), (4, 3))
"""Minor versions of Spark that the plug-in is built and tested for."""

OLDEST_JAVA: Final = 17
"""The oldest Java that Spark 4 runs on."""

SUPPORTED_TEXT: Final = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)

_CORE_JAR: Final = re.compile(r"spark-core_(\d+\.\d+)-(.+)\.jar")
_COMPILER_JAR: Final = re.compile(r"scala-compiler-(.+)\.jar")
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True, slots=True)
class Spark:
    """An installed Spark."""

    home: Path
    version: str
    """The full version, such as `4.3.0`."""
    scala: str
    """Version of its Scala compiler."""

    @property
    def minor(self) -> str:
        """Major and minor version, such as `4.3`."""
        return ".".join(map(str, release_of(self.version) or ()))

    @property
    def classpath(self) -> str:
        """All jars of the installation, as a JVM takes them."""
        return str(self.home / "jars" / "*")


def find_spark(home: Path | str | None = None) -> Spark:
    """The Spark at `home`, else at $SPARK_HOME, else the installed pyspark.

    That is the order in which pyspark itself looks. Raises ConfigError when there is none, when
    it lacks its jars, or when its version is not supported.
    """
    spark = _spark_at(home_of(home))
    newest = SUPPORTED_TEXT.rpartition(" ")[2]
    if release_of(spark.version) not in SUPPORTED:
        raise ConfigError(
            f"Spark at {spark.home}",
            expected=f"version {SUPPORTED_TEXT}",
            found=spark.version,
            action=f"install a supported one, for example pip install 'pyspark=={newest}.*'",
        )
    return spark


def release_of(version: str) -> tuple[int, int] | None:
    """Major and minor number of a Spark version; None when the text is no version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def require_pyspark() -> Spark:
    """The Spark that a session of this Python would start.

    Raises ConfigError when Spark, Java or the module pyspark is missing, without importing it.
    """
    spark = find_spark()
    find_java()
    if find_spec("pyspark") is None:
        raise ConfigError(
            "module pyspark",
            expected=f"pyspark {SUPPORTED_TEXT} in this Python",
            found=f"only the Spark at {spark.home}",
            action="pip install 'tidelog[spark]'",
        )
    return spark


def find_java() -> Path:
    """The `java` that Spark would start: of $JAVA_HOME, else on the PATH; raises ConfigError."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if java.is_file():
            return java
        raise ConfigError(
            "environment variable JAVA_HOME",
            expected="a directory with bin/java",
            found=home,
            action="correct or unset it",
        )
    on_path = shutil.which("java")
    if on_path is None:
        raise ConfigError(
            "Java",
            expected=f"version {OLDEST_JAVA} or newer, at JAVA_HOME or on the PATH",
            found="none",
            action="install one, for example openjdk-17-jre-headless, or set JAVA_HOME",
        )
    return Path(on_path)


def java_version(java: Path) -> int:
    """Major version of a `java`; raises ConfigError when it does not start."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
        output = (run.stderr + run.stdout).strip()
    except (OSError, subprocess.CalledProcessError) as cause:
        output = str(cause)
    match = _JAVA_VERSION.search(output)
    if match is None:
        raise ConfigError(
            f"Java at {java}",
            expected="a JVM that tells its version",
            found=output,
            action="set JAVA_HOME to a working one",
        )
    return int(match[1])


def fitting_java(oldest: int, whose: str) -> Path:
    """A `java` of at least this major version; `whose` says who needs it, such as "Spark itself".

    Raises ConfigError when there is none, or one that is older.
    """
    java = find_java()
    version = java_version(java)
    if version < oldest:
        raise ConfigError(
            f"Java at {java}",
            expected=f"version {oldest} or newer, as {whose} needs",
            found=f"version {version}",
            action="install a newer one and set JAVA_HOME to it",
        )
    return java


def home_of(home: Path | str | None) -> Path:
    """The directory `home`, else that of pyspark's Spark; raises ConfigError when there is none."""
    chosen = home or os.environ.get("SPARK_HOME")
    if chosen:
        return Path(chosen)
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "Spark",
            expected=f"pyspark {SUPPORTED_TEXT} in this Python, or SPARK_HOME",
            found="neither",
            action="pip install 'tidelog[spark]', or set SPARK_HOME",
        )
    return Path(spec.origin).parent


def _spark_at(home: Path) -> Spark:
    jars = home / "jars"
    names = sorted(path.name for path in jars.glob("*.jar"))
    core = next(filter(None, map(_CORE_JAR.fullmatch, names)), None)
    compiler = next(filter(None, map(_COMPILER_JAR.fullmatch, names)), None)
    if core is None or compiler is None:
        pattern = "spark-core_*.jar" if core is None else "scala-compiler-*.jar"
        raise ConfigError(
            f"Spark at {home}",
            expected=f"{pattern} in {jars}",
            found=f"{plural(len(names), 'jar')}, none of that name",
            action="point SPARK_HOME to a full installation; pyspark-client has no Spark in it",
        )
    return Spark(home=home, version=core[2], scala=compiler[1])
