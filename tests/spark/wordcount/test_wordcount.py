"""The word count on Spark: the right counts, whatever is killed meanwhile."""

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.stores import missing
from tests.spark.wordcount.counts import Tree, WordCount, listed, spark_home
from tests.support.depth import more_in_depth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        tree.directory,
        tmp_path / "checkpoint",
        ("--partitions", "3", "--files-per-batch", "2"),
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
