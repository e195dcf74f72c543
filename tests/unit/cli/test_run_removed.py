"""`tidelog run` with operators that are gone: refused, or told in the run's report."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.cli import files, lay_out, tidelog
from tests.support.jobs import WORDS, Tide, contents, run_until_break, word_count
from tidelog.connectors.program import Callback
from tidelog.runtime.graph import Job
from tidelog.storage.memory import MemoryStore

FEW = WORDS[:100]


def renamed() -> Job:
    """The word count, its aggregate under another name."""
    job = Job("word-count")
    keyed = job.source(Tide(FEW)).key_by(lambda word: word)
    counted = keyed.aggregate(lambda _: 1, lambda a, b: a + b, name="total")
    counted.sink(Callback(lambda _: None))
    return job


def another() -> Job:
    """A job like it."""
    job = word_count(FEW)
    job.name = "another"
    return job


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a word count that broke half way."""
    broken = MemoryStore()
    run_until_break(broken, word_count(FEW, 60))
    return lay_out(tmp_path / "store", contents(broken))


def run(job: str, store: Path, *options: str) -> Result:
    module = "tests.unit.cli.test_run_removed"
    return tidelog("run", f"{module}:{job}", "--store", store, "--key-groups", "16", *options)


def test_dropped_state_needs_leave_and_stands_in_the_report(store: Path) -> None:
    before = files(store)
    refused = run("renamed", store)
    assert refused.exit_code == 1
    assert "--allow-dropped-state count" in refused.output
    assert files(store) == before, "the running job is not fenced"
    done = run("renamed", store, "--allow-dropped-state", "count", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["dropped_state"] == ["state 'aggregate' of operator 'count'"]


def test_the_store_of_a_job_of_another_name_is_left_alone(store: Path, tmp_path: Path) -> None:
    before = files(store)
    refused = run("another", store)
    assert refused.exit_code == 1
    assert "expected job 'word-count', whose checkpoints the store has" in refused.output
    assert files(store) == before
    taken = run("another", tmp_path / "own", "--from", f"{store}@latest")
    assert taken.exit_code == 0, taken.output
