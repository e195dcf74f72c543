"""Stores whose job has changed between two runs are verified like any other."""

from typing import Any

import pytest

from tests.support.pipelines import Outside, words
from tests.unit.runtime.test_changed_types import run, stopped
from tests.unit.verify.stores import report_on, verdicts
from tidelog import Job
from tidelog.storage.memory import MemoryStore


def counts(name: str = "count", **aggregate: Any) -> Job:
    job = Job("counts")
    options = {"value_of": lambda _: 1, "combine": lambda a, b: a + b, **aggregate}
    job.source(words(length=200)).key_by(str).aggregate(name=name, **options).sink(Outside())
    return job


def assert_sound(store: MemoryStore) -> None:
    told = verdicts(report_on(store))
    assert told and set(told.values()) == {"sound"}, told


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_store_is_sound_after_its_values_were_migrated(parallelism: int) -> None:
    store = MemoryStore("memory://migrated")
    stopped(counts(), store, retain=20)
    changed = counts(value_of=str, value_type=str, migrate=str)
    stopped(changed, store, "migrated", parallelism=parallelism, retain=20)
    assert_sound(store)
    run(changed, store, parallelism=parallelism, retain=20)
    assert_sound(store)


def test_a_store_is_sound_after_an_operator_was_dropped_and_came_back() -> None:
    store = MemoryStore("memory://dropped")
    stopped(counts(), store, retain=20)
    stopped(counts("total"), store, "dropped", retain=20, allow_dropped_state=("count",))
    assert_sound(store)
    run(counts(), store, retain=20, allow_dropped_state=("total",))
    assert_sound(store)
