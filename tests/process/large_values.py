"""Programs with a loop of their own whose values are large: each says how much memory it took."""

import os
import sys
import time
from pathlib import Path

import tidelog
from tests.process.memory_job import resident_bytes
from tidelog import CheckpointConfig, Database, JobConfig, MapState, ValueState

STATES = {"value": ValueState(bytes), "map": MapState(str, bytes)}
MANY = 300
"""Values of a mebibyte that one step sets."""


def one(url: str, state: str, size: int) -> None:
    """Sets a value of `size` bytes, and makes it durable."""
    with tidelog.open(
        url, STATES, config=JobConfig(checkpoint=CheckpointConfig(interval=1e6))
    ) as db:
        change(db, "small", state, 100)
        db.checkpoint()
        first = begin_peak()
        change(db, "large", state, size)
        db.checkpoint()
        print(peak_bytes() - first)


def change(db: Database, key: str, state: str, size: int) -> None:
    if state == "map":
        db.key(key).map.set("entry", os.urandom(size))
    else:
        db.key(key).value.set(os.urandom(size))


def step(url: str, state: str, budget: int) -> None:
    """Sets many values in one step, for which a checkpoint waits."""
    config = JobConfig(checkpoint=CheckpointConfig(interval=0.02), memory=budget)
    with tidelog.open(url, STATES, config=config) as db:
        for number in range(1000):
            change(db, str(number), state, 100)
        db.checkpoint()
        first = begin_peak()
        with db.step():
            change(db, "first", state, 100)
            time.sleep(0.2)
            for number in range(MANY):
                change(db, str(number), state, 1 << 20)
        print(peak_bytes() - first)


def begin_peak() -> int:
    """Resident memory, whose peak is counted from now on."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes()


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    _, program, url, state, number = sys.argv
    {"one": one, "step": step}[program](url, state, int(number))
