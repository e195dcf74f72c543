"""State for a program's own loop: what a get, a set and a step cost the program's thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import tidelog
from benchmarks.micro.inputs import BUFFER, word
from tidelog import CheckpointConfig, Database, JobConfig, ValueState

KEYS = [word(number, 16) for number in range(BUFFER)]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A database with all keys in memory that takes no checkpoints by itself."""
    config = JobConfig(checkpoint=CheckpointConfig(interval=3600))
    with tidelog.open(str(tmp_path / "store"), {"n": ValueState(int)}, config=config) as db:
        for key in KEYS:
            db.key(key).n.set(0)
        yield db


def test_set_through_kept_handles(benchmark: BenchmarkFixture, db: Database) -> None:
    """Set 2048 warm keys whose handles the program keeps."""
    handles = [db.key(key).n for key in KEYS]

    def put() -> None:
        for handle in handles:
            handle.set(1)

    benchmark(put)
    assert db.key(KEYS[-1]).n.get() == 1


def test_get_through_kept_handles(benchmark: BenchmarkFixture, db: Database) -> None:
    """Get 2048 warm keys whose handles the program keeps."""
    handles = [db.key(key).n for key in KEYS]
    assert benchmark(lambda: [handle.get() for handle in handles]) == [0] * BUFFER


def test_count_in_steps(benchmark: BenchmarkFixture, db: Database) -> None:
    """Look up a key, read, add one, write, advance: 2048 keys."""

    def count() -> None:
        for number, key in enumerate(KEYS):
            hits = db.key(key).n
            hits.set((hits.get() or 0) + 1)
            db.advance("keys", number)

    benchmark(count)
    assert (db.key(KEYS[0]).n.get() or 0) >= 1


def test_scan(benchmark: BenchmarkFixture, db: Database) -> None:
    """Scan 2048 keys that the table has."""
    assert len(benchmark(lambda: list(db.scan("n")))) == BUFFER
