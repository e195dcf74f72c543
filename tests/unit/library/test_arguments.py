"""An argument of another type than its own is refused by its name, before anything is stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.unit.library.conftest import STATES, opened
from tidelog import (
    ConfigError,
    ForeachSink,
    IterableSource,
    Job,
    JobConfig,
    JobRunner,
    ValueState,
    open_store,
    serve_metrics,
)


def job() -> Job:
    job = Job("numbers")
    job.source(IterableSource([1])).sink(ForeachSink(lambda _: None))
    return job


def runner(url: str, *arguments: Any, **named: Any) -> JobRunner:
    return JobRunner(job(), open_store(url), *arguments, **named)


TWO_WORKERS = JobConfig(workers=2)
WRONG: list[tuple[str, Callable[[Any], object]]] = [
    ("store URL; .*found None", lambda _: tidelog.open(None, STATES)),
    ("store URL; .*found 5", lambda url: tidelog.open(url, STATES, log_url=5)),
    ("name of a job; .*found None", lambda url: tidelog.open(url, STATES, name=None)),
    ("config=; .*found {'retain': 3}", lambda url: tidelog.open(url, STATES, config={"retain": 3})),
    ("sinks=; .*expected {name: Sink}", lambda url: tidelog.open(url, STATES, sinks=["a"])),
    ("sink 'a'; .*expected a Sink", lambda url: tidelog.open(url, STATES, sinks={"a": print})),
    ("operator id 1", lambda url: tidelog.open(url, STATES, sinks={1: ForeachSink(print)})),
    ("type of state 'a'; .*found \\[", lambda url: tidelog.open(url, {"a": ValueState([int])})),
    ("name=; .*found None", lambda url: tidelog.open_partitions(url, STATES, name=None)),
    ("partitions=; .*True", lambda url: tidelog.open_partitions(url, STATES, partitions=True)),
    ("store URL; .*found 5", lambda url: tidelog.open_partitions(url, STATES, log_url=5)),
    ("state 'a'; .*int", lambda url: tidelog.open_partitions(url, {"a": int})),
    ("config=; .*found 7", lambda url: tidelog.open_partitions(url, STATES, config=7)),
    ("savepoint name 5", lambda url: opened(url).savepoint(5)),
    ("name of a job; .*found 5", lambda _: Job(5)),
    ("the source 'source'; .*found 'texts'", lambda _: Job("a").source("texts")),
    ("job of a JobRunner; .*function", lambda url: JobRunner(job, open_store(url))),
    ("store of a JobRunner; .*open_store", lambda url: JobRunner(job(), url)),
    ("config of a JobRunner", lambda url: runner(url, {"retain": 3})),
    ("workers; .*tidelog run FILE.py:FUNCTION --workers 2", lambda url: runner(url, TWO_WORKERS)),
    ("workers; .*open_partitions", lambda url: tidelog.open(url, STATES, config=TWO_WORKERS)),
    ("restore_from of a JobRunner", lambda url: runner(url, restore_from="halt")),
    ("metrics port 9464; .*a number", lambda _: serve_metrics("9464").__enter__()),
]


@pytest.mark.parametrize(("says", "call"), WRONG, ids=[says for says, _ in WRONG])
def test_what_cannot_be_an_argument_is_refused_by_its_name(
    says: str, call: Callable[[Any], object], url: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        call(url)
    assert not Path(url, "application.json").exists()
