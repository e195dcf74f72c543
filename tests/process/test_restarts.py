"""A job that is killed while its tables arrive, and started again in another mode and with another
parallelism, ends as if nothing had happened; what is damaged in the store ends it.
"""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.process.harness import GIVE_UP_S, ROOT, killed_at_last, wait_until
from tests.process.restart_job import BASE, Start, expected
from tests.support.depth import more_in_depth
from tests.support.output_files import output_lines
from tidelog.catalog.inventory import read_inventory
from tidelog.effects import Effects, InlineOffload
from tidelog.storage.local import LocalStore

SEED = int(os.environ.get("TIDELOG_TEST_SEED", "20261130"))
HISTORIES = more_in_depth(3, 100)
STATE_BYTES = 2_000_000
KILLS = more_in_depth(2, 4)
"""Kills of a history, each of a start while its tables arrive or soon after."""
LINK_MB_PER_S = 3.0


@dataclass
class History:
    """The store and the output of one job, and its starts."""

    directory: Path
    rng: random.Random
    starts: list[Start] = field(default_factory=list)

    def start(self, **options: Any) -> "subprocess.Popen[str]":
        """A start in a mode and with a parallelism that chance draws, over a narrow link."""
        names = {name: str(self.directory / name) for name in ("store", "output")}
        narrow = {"mb_per_s": LINK_MB_PER_S, "latency_ms": 20.0}
        drawn = {
            "begin": self.rng.choice(("at-once", "at-once", "at-once", "when-whole")),
            "parallelism": self.rng.randrange(1, 4),
            "work": str(self.directory / f"work-{len(self.starts)}"),
        }
        start = msgspec.convert({**names, **narrow, **drawn, **options}, Start)
        self.starts.append(start)
        command = [sys.executable, "-m", "tests.process.restart_job", msgspec.json.encode(start)]
        return subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def records(self) -> list[dict[str, Any]]:
        """All that was committed, in the order of the numbers."""
        records = [json.loads(line) for line in output_lines(self.directory / "output")]
        return sorted(records, key=lambda record: record["number"])

    def table_files(self) -> list[Path]:
        return sorted((self.directory / "store" / "tables").rglob("*.sst"))

    async def needed_files(self) -> list[Path]:
        """The table files that the newest checkpoint needs."""
        store = self.directory / "store"
        inventory = await read_inventory(LocalStore(store, Effects(offload=InlineOffload())))
        newest = inventory.slots.newest
        assert newest is not None
        names = sorted(inventory.needed_names(newest))
        return [store / name for name in names if name.endswith(".sst")]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store and the output of a job that was killed when its state was made."""
    history = History(tmp_path_factory.mktemp("base"), random.Random(SEED))
    process = history.start(makes_state=True, mb_per_s=0.0, begin="when-whole", parallelism=2)

    def is_made() -> bool:
        stored = 0
        for path in history.table_files():
            with suppress(FileNotFoundError):  # retention has deleted it meanwhile
                stored += path.stat().st_size
        return len(history.records()) == BASE and stored > STATE_BYTES

    with killed_at_last(process):
        wait_until(is_made, process)
    return history.directory


def history_of(base: Path, directory: Path, seed: int) -> History:
    history = History(directory / "history", random.Random(f"{SEED}/{seed}"))
    shutil.copytree(base, history.directory)
    return history


def kill_while_tables_arrive(history: History) -> None:
    """Kill a start: before it handles records, meanwhile, or soon after its tables are whole."""
    with killed_at_last(history.start()) as process:
        assert process.stdout is not None
        for _ in range(history.rng.choice((0, 1, 1, 1, 2))):
            process.stdout.readline()  # nothing, when it has ended
        time.sleep(history.rng.uniform(0, 1.0))
        # It may have ended well meanwhile.
        assert process.poll() in (None, 0), process.communicate()


def finish(history: History) -> None:
    process = history.start()
    _, errors = process.communicate(timeout=GIVE_UP_S)
    assert process.returncode == 0, errors


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_job_that_is_killed_while_its_tables_arrive_counts_every_number_right(
    base: Path, tmp_path: Path, seed: int
) -> None:
    history = history_of(base, tmp_path, seed)
    for _ in range(KILLS):
        kill_while_tables_arrive(history)
    finish(history)
    for start in history.starts:
        print(start.begin, start.parallelism)
    assert history.records() == expected()
    left = Path(history.starts[-1].work).rglob("*")
    assert [path for path in left if path.is_file()] == []


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_damaged_part_of_a_table_ends_the_job_and_makes_no_wrong_record(
    base: Path, tmp_path: Path, seed: int
) -> None:
    history = history_of(base, tmp_path, seed)
    damaged = history.rng.choice(asyncio.run(history.needed_files()))
    whole = damaged.read_bytes()
    position = history.rng.randrange(len(whole))
    changed = bytes((whole[position] ^ 1 << history.rng.randrange(8),))
    damaged.write_bytes(whole[:position] + changed + whole[position + 1 :])
    process = history.start(begin="at-once")
    _, errors = process.communicate(timeout=GIVE_UP_S)
    assert process.returncode == 1
    assert "CorruptObjectError" in errors and damaged.name in errors
    records = expected()
    for record in history.records():
        assert record == records[record["number"]]
    damaged.write_bytes(whole)
    finish(history)
    assert history.records() == records
