"""Faults of the file system under a checkpoint: the scheme `faulty` and its rules.

A checkpoint at `faulty:///a/b` lies in the local directory /a/b. `faulty` is written to as an
object store is, by single conditional PUTs; `renaming` is the same file system, with renames.

Invariant: a rule holds in every JVM of every application whose settings name its directory, from
the moment `add` returns until `release` or `clear`.
"""

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from tests.spark.support.session import PATIENCE_S, ROOT
from tests.support.made_once import by_one_process
from tidelog.effects import cache_directory
from tidelog.spark.plugin.jar import compile_jar
from tidelog.spark.plugin.toolchain import find_spark

SOURCES = ROOT / "native/spark-state-store/src/test/scala/tidelog/spark/faults"
CLASS = "tidelog.spark.faults.FaultyFileSystem"
LIGHT = ("fs.AbstractFileSystem.file.impl", "tidelog.spark.faults.LightLocalFs")
"""Hadoop's setting for a local file system that starts no processes. Only for a session that runs:
Spark looks for its own jars before it knows those of the tests.
"""

SEGMENT = r"/_tidelog/segments/[^/]+\.seg$"
OF_AN_EXECUTOR = r"-\d+-\d{8}\.seg$"
"""Segments of large changelogs, which their executor stores itself."""
ROLL_UP = r"/_tidelog/index/[^/]+\.json$"


def commit(batch: int | str) -> str:
    return rf"/checkpoint/commits/{batch}$"


def jar(spark_home: Path | None = None) -> Path:
    """The jar of the file system, compiled once for each Spark."""
    spark = find_spark(spark_home)
    sources = sorted(SOURCES.glob("*.scala"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    target = cache_directory() / "tests" / f"faulty-{spark.version}-{digest}.jar"
    with by_one_process("faulty"):
        if not target.is_file():
            compile_jar(sources, [], target, spark=spark)
    return target


def settings(control: Path, jars: str, spark_home: Path | None = None) -> dict[str, str]:
    """What makes Spark know the file system; `jars` are the other ones."""
    control.mkdir(parents=True, exist_ok=True)
    return {
        "spark.jars": ",".join(filter(None, [jars, str(jar(spark_home))])),
        "spark.hadoop.fs.faulty.impl": CLASS,
        "spark.hadoop.fs.renaming.impl": CLASS,
        "spark.hadoop.fs.faulty.control": str(control),
        "spark.hadoop.spark.tidelog.put.schemes": "s3a,faulty",
    }


@dataclass(frozen=True)
class Rule:
    control: Path
    name: str

    def fired(self) -> int:
        """How often the rule has applied."""
        return sum(1 for _ in self.control.glob(f"{self.name}.fired.*"))

    def await_fired(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.fired():
            assert time.monotonic() < deadline, f"rule {self.name} has not applied"
            time.sleep(0.01)

    def release(self) -> None:
        """Let the operations that it holds go on, and hold no others."""
        (self.control / f"{self.name}.rule").unlink(missing_ok=True)
        (self.control / f"{self.name}.release").touch()


@dataclass(frozen=True)
class Faults:
    control: Path

    def add(self, action: str, op: str, path: str, times: int | None = None) -> Rule:
        """From now on `op` (put, open, rename, delete, list; content) on paths that match the
        regular expression `path` meets `action`, `times` times or always.
        """
        number = sum(1 for _ in self.control.glob("*.known"))
        rule = Rule(self.control, f"{number:03d}-{action}")
        (self.control / f"{rule.name}.known").touch()
        if times is not None:
            for token in range(times):
                (self.control / f"{rule.name}.token.{token}").touch()
            (self.control / f"{rule.name}.limited").touch()
        unseen = self.control / f"{rule.name}.new"
        escaped = path.replace("\\", "\\\\")
        unseen.write_text(f"op={op}\npath={escaped}\naction={action}\n")
        unseen.replace(self.control / f"{rule.name}.rule")
        return rule

    def clear(self) -> None:
        """No rule holds any more, and nothing is held."""
        for file in self.control.glob("*.rule"):
            Rule(self.control, file.stem).release()
