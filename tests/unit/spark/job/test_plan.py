"""What of a graph Spark has no equivalent for is refused before a query starts, with a way out."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

from tidelog import (
    CsvSource,
    FileSink,
    Job,
    JsonLinesSource,
    KafkaSource,
    ParquetSource,
    Stream,
    TextFileSource,
)
from tidelog.errors import ConfigError
from tidelog.spark.job.plan import JobPlan
from tidelog.spark.job.sources import FileReader, MessageReader

Ended = Callable[[Stream], Any]


def planned(build: Callable[[Job, Stream], Stream]) -> JobPlan:
    job = Job("job")
    stream = job.source(JsonLinesSource("in")).event_time(attrgetter("t"))
    build(job, stream).sink(FileSink("out"))
    return JobPlan(job)


def aggregated_at_the_end(job: Job, stream: Stream) -> Stream:
    return stream.key_by(attrgetter("k")).count()


def averaged_at_the_end(job: Job, stream: Stream) -> Stream:
    return stream.key_by(attrgetter("k")).mean(attrgetter("v"))


def broadcast(job: Job, stream: Stream) -> Stream:
    rules = job.source(JsonLinesSource("rules"), name="rules")
    nothing: Any = lambda *_: ()  # noqa: E731
    return stream.with_broadcast(rules, on_rule=nothing, on_record=nothing)


@pytest.mark.parametrize(
    ("build", "what", "action"),
    [
        (aggregated_at_the_end, "operator 'count' on Spark", "emit_updates=True"),
        (averaged_at_the_end, "operator 'mean' on Spark", "emit_updates=True"),
        (broadcast, "operator 'with-broadcast' on Spark", "enrich by key"),
    ],
)
def test_what_has_no_equivalent_is_refused_with_another_way(
    build: Callable[[Job, Stream], Stream], what: str, action: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        planned(build)
    assert what in str(refusal.value)
    assert action in str(refusal.value)


def test_an_operator_that_the_job_has_not_is_refused_with_those_it_has() -> None:
    job = Job("job")
    job.source(JsonLinesSource("in")).map(str, name="texts").sink(FileSink("out"))
    with pytest.raises(ConfigError, match="one of job 'job': texts"):
        JobPlan(job, "windows")


def test_a_stage_has_only_what_leads_to_its_operator() -> None:
    job = Job("job")
    stream = job.source(JsonLinesSource("in")).map(str, name="used")
    stream.key_by(len).count(emit_updates=True).sink(FileSink("out"))
    stream.map(len, name="unused").sink(FileSink("other"), name="other")
    plan = JobPlan(job, "count")
    assert [node.id for node in plan.nodes] == ["source", "used", "count"]


@pytest.mark.parametrize(
    "reader",
    [
        *(FileReader(kind("."), {}) for kind in (CsvSource, ParquetSource, TextFileSource)),
        FileReader(JsonLinesSource("."), {}),
        *(MessageReader(KafkaSource("t", bootstrap="b:1", value=v).decoder) for v in ("json", str)),
    ],
    ids=lambda reader: type(reader).__name__,
)
def test_what_reads_a_source_goes_to_executors(reader: Any) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    assert type(cloudpickle.loads(cloudpickle.dumps(reader))) is type(reader)
