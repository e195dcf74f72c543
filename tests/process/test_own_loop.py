"""A program with a loop of its own, killed at any moment, counts and writes every word once."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import tidelog
from tests.process import harness
from tests.support import cli
from tests.support.depth import more_in_depth
from tidelog import Map, Value

KILLS = more_in_depth(2, 40)
WORDS = more_in_depth(20_000, 200_000)


def start(directory: Path) -> "subprocess.Popen[str]":
    arguments = [str(directory / each) for each in ("store", "lines.txt", "released", "out")]
    program = [sys.executable, "-m", "tests.process.own_loop", *arguments]
    return subprocess.Popen(program, cwd=harness.ROOT, stderr=subprocess.PIPE, text=True)


def slots(directory: Path) -> int:
    names = (directory / "store" / "checkpoints").glob("*.json")
    return max((int(path.stem) for path in names), default=-1)


def test_every_word_is_counted_and_written_once_however_often_the_program_is_killed(
    tmp_path: Path,
) -> None:
    rng = random.Random(1711)
    words = [f"w{min(rng.randrange(300), rng.randrange(300))}" for _ in range(WORDS)]
    lines = [" ".join(words[at : at + 5]) for at in range(0, len(words), 5)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    for _ in range(KILLS):
        wanted = slots(tmp_path) + rng.randrange(1, 5)
        with harness.killed_at_last(start(tmp_path)) as process:
            harness.wait_until(lambda wanted=wanted: slots(tmp_path) >= wanted, process)
            time.sleep(rng.random() * 0.05)
    (tmp_path / "released").touch()
    ended = start(tmp_path)
    _, errors = ended.communicate(timeout=harness.GIVE_UP_S)
    assert ended.returncode == 0, errors
    url = str(tmp_path / "store")
    with tidelog.open(url, state={"count": Value(int), "files": Map(str, int)}) as db:
        assert db.position == {"lines": os.stat(tmp_path / "lines.txt").st_size}  # noqa: PTH116
        counts = {word: db.key(word).count.get() for word in set(words)}
    assert counts == Counter(words)
    expected = sorted((word, n) for word, count in counts.items() for n in range(1, count + 1))
    lines = [line.split() for part in (tmp_path / "out").glob("part-*") for line in part.open()]
    assert sorted((word, int(n)) for word, n in lines) == expected
    rows = sqlite3.connect(tmp_path / "out.db").execute("select word, n from counts")
    assert sorted(rows) == expected
    assert cli.tidelog("inspect", url, "--deep").exit_code == 0
    assert cli.tidelog("verify", url, "--engine", "local").exit_code == 0
