"""The jars of Apache Kafka's broker: those of KAFKA_HOME, else fetched once with Maven and kept.

Invariant: a directory of jars appears under its name complete or not at all, so several processes
may ask at once.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.effects import cache_directory
from tidelog.errors import ConfigError

HOME_VARIABLE: Final = "KAFKA_HOME"
KAFKA: Final = "4.1.1"

_POM: Final = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidelog</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{kafka}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_PATIENCE_S: Final = 600


def kafka_jars(say: Callable[[str], None] | None = None) -> Path:
    """The directory with the broker's jars; `say` gets a line before a download, by default on
    standard error. Raises ConfigError.
    """
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return _jars_of(Path(home))
    target = cache_directory() / "kafka" / f"kafka-{KAFKA}"
    if not target.is_dir():
        (say or _to_standard_error)(f"fetching the broker of Apache Kafka {KAFKA} once, 43 MB ...")
        _fetch(target)
    return target


def _jars_of(home: Path) -> Path:
    for directory in (home / "libs", home):
        if any(directory.glob("kafka-server-[0-9]*.jar")):
            return directory
    raise ConfigError(
        f"environment variable {HOME_VARIABLE}",
        expected="the directory of an Apache Kafka 4, with kafka-server-*.jar in its libs",
        found=str(home),
        action="correct it, or unset it to have Kafka fetched",
    )


def _fetch(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(
            "Maven",
            expected="`mvn` on the PATH, to fetch Kafka's broker",
            found="none",
            action="install it (apt-get install maven), name a Kafka that is installed by "
            f"{HOME_VARIABLE}, or use a broker that runs",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        (Path(scratch) / "pom.xml").write_text(_POM.format(kafka=KAFKA))
        jars = Path(scratch) / "jars"
        command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        found = _failure(command, scratch)
        if found is not None:
            raise ConfigError(
                f"the jars of Apache Kafka {KAFKA}",
                expected="that Maven fetches them",
                found=found,
                action="see whether Maven reaches its repository, or name a Kafka that is "
                f"installed by {HOME_VARIABLE}",
            )
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise


def _failure(command: list[str], directory: str) -> str | None:
    """What went wrong with a command; None: nothing."""
    try:
        run = subprocess.run(
            command,
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_PATIENCE_S} s"
    lines = [line for line in run.stdout.splitlines() if "ERROR" in line]
    return None if run.returncode == 0 else f"exit code {run.returncode}: {' '.join(lines[:3])}"


def _to_standard_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
