"""The word count on Spark in processes of its own: right counts, whatever is killed meanwhile."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from tests.spark.support.session import QUICK_JVM, ROOT
from tests.spark.support.shared_classes import VARIABLE as OPTIONS_OF_JVMS
from tests.spark.support.stores import INTERPRETED, missing
from tests.support.depth import more_in_depth
from tidelog.examples import spark_wordcount
from tidelog.spark.plugin.toolchain import find_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_JVMS = (
    *("--conf", "spark.driver.memory=1g"),
    *("--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"),
    *("--conf", "spark.sql.streaming.minBatchesToRetain=6"),
    *("--conf", "spark.sql.streaming.stateStore.maintenanceInterval=1s"),
    *(part for name in INTERPRETED.items() for part in ("--conf", "=".join(name))),
)
_BATCH = re.compile(r"batch (\d+): ")
_TOP = re.compile(r" *([\d,]+) (\S+)")


@dataclass
class Tree:
    """A directory of text files, and what is in it."""

    directory: Path
    files: int = field(default=0, init=False)

    def add(self, text: str | bytes, *names: str) -> Path:
        """A file that appears whole, in the directory that `names` lead to."""
        data = text.encode() if isinstance(text, str) else text
        target = self.directory.joinpath(*names) / f"{self.files}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        unseen = target.with_name(f".{target.name}")
        unseen.write_bytes(data)
        unseen.replace(target)
        self.files += 1
        return target

    def words(self) -> Counter[str]:
        """All words, counted by Python."""
        texts = [path.read_bytes() for path in self.directory.rglob("[!.]*.txt")]
        return Counter(word for text in texts for word in text.decode(errors="replace").split())


@dataclass
class WordCount:
    """One job; every run of it has the same arguments."""

    input: Path
    checkpoint: Path
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def finish_on(self, spark: "SparkSession", *more: str) -> Result:
        """Run to the end on a Spark that runs already, whose settings for JVMs stay as they are."""
        session = spark.newSession()

        def lent(master: str, conf: dict[str, str], *, stock: bool) -> "SparkSession":
            for key, value in conf.items():
                session.conf.set(key, value)
            return session

        with patch.object(session, "stop"), patch.object(spark_wordcount, "session", lent):
            try:
                arguments = [*self._where, *self.options, *more]
                return CliRunner().invoke(spark_wordcount.main, arguments)
            finally:
                spark.sparkContext.setLogLevel("ERROR")  # a run that is stopped turns it off

    def kill_after(self, batches: int, pause_s: float, *more: str) -> list[int]:
        """Run until so many batches are reported and a pause is over, then `kill -9` all of it;
        returns the batches that were reported.
        """
        seen: list[int] = []
        # Executors do not look for them themselves.
        quick = os.environ.get(OPTIONS_OF_JVMS, QUICK_JVM)
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "tidelog.examples.spark_wordcount"),
                *(*self._where, *SMALL_JVMS, *self.options),
                *("--follow", "--interval", "0 seconds", *more),
                *("--conf", f"spark.executor.extraJavaOptions={quick}"),
            ],
            cwd=ROOT,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    found = _BATCH.match(line)
                    seen += [int(found[1])] if found else []
                    if len(seen) >= batches:
                        break
                time.sleep(pause_s)
                assert process.poll() is None, "the job must live until it is killed"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return seen

    @property
    def _where(self) -> tuple[str, ...]:
        return ("--input", str(self.input), "--checkpoint", str(self.checkpoint))


def spark_home(directory: Path) -> Path:
    """The installed Spark at another place: workers of a cluster write into its directory."""
    directory.mkdir()
    for entry in find_spark().home.iterdir():
        if entry.name != "work":
            (directory / entry.name).symlink_to(entry)
    return directory


def listed(output: str) -> Counter[str]:
    """The words that --top has printed."""
    found = [_TOP.fullmatch(line) for line in output.split("\n")]
    return Counter({line[2]: int(line[1].replace(",", "")) for line in found if line})


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

ALL = ("--top", "100000")
KILLS = more_in_depth(1, 3)
CLUSTER = ("--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=1g")
"""Two executors that are processes of their own."""
WHITE = "".join(filter(str.isspace, map(chr, range(0x110000))))
ODD = "\u200b\ufeff\u180e\u2060x \U0001f600\u3000é e\u0301 ÄÖ äö \x00nul *a[b]{c}\\ 'q'"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "in")


@pytest.fixture
def count(tmp_path: Path, tree: Tree) -> WordCount:
    return WordCount(
        tree.directory, tmp_path / "checkpoint", ("--partitions", "3", "--files-per-batch", "2")
    )


def plant(tree: Tree, files: int, seed: int) -> None:
    """Files of words, some of them frequent, in nested directories."""
    rng = random.Random(seed)
    for number in range(files):
        words = [f"w{int(rng.paretovariate(0.5)) % 3000}" for _ in range(200)]
        lines = [" ".join(words[start : start + 9]) for start in range(0, len(words), 9)]
        tree.add("\n".join(lines), f"d{number % 3}", "below")


def plant_odd_files(tree: Tree) -> None:
    """Every kind of white space, bytes that are no text, an odd name, nothing."""
    tree.add(WHITE.join(["a", *map(str, range(9))]) + ODD, "a b", "c[d]{e}%20?")
    tree.add("".join(f"{number}{white}" for number, white in enumerate(WHITE)))
    tree.add(b"\xff\xfe bad\xc2 \xe3\x80 bytes\r\nand\rall ends of\nlines")
    tree.add("")


NOTICED = "'newword': None in the state, 2 in the files"


def change_a_file(tree: Tree) -> None:
    changed = next(tree.directory.glob("d0/below/*.txt"))
    changed.write_text(changed.read_text() + "\nnewword newword")


def test_kill_9_of_driver_and_tasks_loses_and_doubles_no_word(
    spark: "SparkSession", tree: Tree, count: WordCount, tmp_path: Path
) -> None:
    """The first time the tasks are in two processes of their own, then in the driver's. Another
    process goes on in the end; a later change of a file is noticed.
    """
    on_cluster = replace(count, env={"SPARK_HOME": str(spark_home(tmp_path / "spark"))})
    rng = random.Random()
    reported: list[int] = []
    for seed in range(KILLS):
        plant(tree, 10, seed)
        batches, pause_s = rng.randint(2, 3), rng.uniform(0, 0.5)
        if seed == 0:
            reported += on_cluster.kill_after(batches, pause_s, *CLUSTER)
        else:
            reported += count.kill_after(batches, pause_s)
    plant_odd_files(tree)
    done = count.finish_on(spark, *ALL)
    assert done.exit_code == 0, done.output
    assert "verified" in done.stdout
    assert listed(done.stdout) == tree.words()
    assert len(reported) >= 2 * KILLS
    change_a_file(tree)
    again = count.finish_on(spark, "--verify")
    assert again.exit_code == 1
    assert NOTICED in again.stderr
