"""Jobs whose outside system is silent; with an hour to wait for each answer, so that no deadline
ends what a signal should.

TIDELOG_TEST_SYSTEM has the kind of the system and how to connect to it.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tidelog import (
    IcebergSink,
    Job,
    JobArguments,
    KafkaSink,
    KafkaSource,
    PostgresOutboxSource,
    PostgresSink,
    RateSource,
    StdoutSink,
)
from tidelog.connectors import outside
from tidelog.connectors.kafka.writing import producing, staging_topics, topics
from tidelog.storage import obstore_store

HOUR_S = 3600

for module in (producing, staging_topics, topics):
    module.PATIENCE_S = HOUR_S  # type: ignore[misc]
outside._SAY_S = 0.1  # type: ignore[misc]
obstore_store._SILENCE = obstore_store._REQUEST = timedelta(hours=1)  # type: ignore[misc]


def topic(address: str) -> str:
    """The name that may stand behind an address."""
    return [*address.split(), "numbers"][1]


def read(source: Any) -> Job:
    job = Job("reader")
    job.source(source).sink(StdoutSink())
    return job


def written(sink: Any) -> Job:
    job = Job("writer")
    job.source(RateSource(100, splits=4)).map(lambda n: (n,)).sink(sink)
    return job


JOBS: dict[str, Callable[[str], Job]] = {
    "outbox": lambda at: read(PostgresOutboxSource(at, "outbox", answer_s=HOUR_S)),
    "postgres": lambda at: written(PostgresSink(at, "numbers", {"n": "bigint"}, answer_s=HOUR_S)),
    "iceberg": lambda at: written(
        IcebergSink({"type": "rest", "uri": at}, "lake.numbers", answer_s=HOUR_S)
    ),
    "kafka source": lambda at: read(
        KafkaSource(
            topic(at),
            bootstrap=at.split()[0],
            connect_s=HOUR_S,
            outage_s=None,
            client={"socket.timeout.ms": 1000},
        )
    ),
    "kafka sink": lambda at: written(KafkaSink(topic(at), bootstrap=at.split()[0])),
    "kafka sink, at least once": lambda at: written(
        KafkaSink(topic(at), bootstrap=at.split()[0], exactly_once=False)
    ),
    "s3": lambda at: written(StdoutSink()),
}


def job(_: JobArguments) -> Job:
    kind, _, address = os.environ["TIDELOG_TEST_SYSTEM"].partition(": ")
    return JOBS[kind](address)
