"""Jobs that read topics, run to an end or until something holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.first_jobs.programs import run
from tests.support.kafka import Topics
from tidelog import ForeachSink, Job, KafkaRecord, KafkaSource


def source(topics: Topics, *names: str, **options: Any) -> KafkaSource:
    return KafkaSource(names, bootstrap=topics.bootstrap, **{"value": "text", **options})


def read(
    source: KafkaSource,
    store: Path,
    until: Callable[[list[KafkaRecord]], bool] | None = None,
    *,
    parallelism: int = 1,
    **settings: Any,
) -> list[KafkaRecord]:
    """What a job gets of a source: until its end, or until a condition holds and it is stopped."""
    found: list[KafkaRecord] = []
    job = Job("reader")
    job.source(source).sink(ForeachSink(found.append))
    stop = None if until is None else lambda: until(found)
    run(job, store, stop, parallelism=parallelism, **settings)
    return found


def values(records: list[KafkaRecord]) -> list[Any]:
    return [record.value for record in records]
