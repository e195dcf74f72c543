"""A broker with ACLs: source and sink need the rights that the guide names, and no others."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kafka import Topics
from tests.support.kafka_broker import USER, Broker
from tests.support.pipelines import Outside, config
from tests.unit.connectors.sinks.job import copying
from tidelog import Job, JobRunner, KafkaSink, KafkaSource
from tidelog.connectors.kafka.client import library
from tidelog.effects import Effects
from tidelog.errors import AccessDeniedError
from tidelog.storage.memory import MemoryStore

OF_TARGETS = ("WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")
OF_STAGING = (
    *("CREATE", "ALTER", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
    *("READ", "WRITE", "DESCRIBE", "DELETE"),
)
OF_TRANSACTIONS = ("WRITE", "DESCRIBE")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, topics: Topics) -> Iterator[Broker]:
    """A broker with ACLs; `topics` says why there can be none."""
    with Broker(tmp_path_factory.mktemp("kafka"), guarded=True) as broker:
        yield broker


def allow(topics: Topics, kind: str, name: str, *rights: str, prefix: bool = False) -> None:
    admin = library().admin
    pattern = admin.ResourcePatternType.PREFIXED if prefix else admin.ResourcePatternType.LITERAL
    made = [
        admin.AclBinding(
            admin.ResourceType[kind],
            name,
            pattern,
            f"User:{USER['sasl.username']}",
            "*",
            admin.AclOperation[right],
            admin.AclPermissionType.ALLOW,
        )
        for right in rights
    ]
    for done in topics.admin.create_acls(made).values():
        done.result(60)


def run(job: Job, store: MemoryStore) -> Any:
    return asyncio.run(JobRunner(job, store, config(parallelism=1), Effects()).run())


def test_a_sink_runs_with_the_rights_that_the_guide_names(guarded: Broker) -> None:
    topics, numbers = Topics(guarded.bootstrap), [(n,) for n in range(40)]
    target = topics.new()
    allow(topics, "TOPIC", target, *OF_TARGETS)
    allow(topics, "TOPIC", "mine", *OF_STAGING, prefix=True)
    allow(topics, "TRANSACTIONAL_ID", "mine", *OF_TRANSACTIONS, prefix=True)
    sink = KafkaSink(target, bootstrap=guarded.guarded_bootstrap, client=USER, prefix="mine")
    run(copying(numbers, sink), MemoryStore())
    shown = [message.value().decode() for message in topics.read(target, len(numbers))]
    assert sorted(shown) == sorted(f"[{n}]" for (n,) in numbers)


def test_a_source_runs_with_the_rights_that_the_guide_names(guarded: Broker) -> None:
    topics, sink = Topics(guarded.bootstrap), Outside()
    topic = topics.new()
    topics.write(topic, ["a", "b"])
    allow(topics, "TOPIC", topic, "READ", "DESCRIBE")
    job = Job("read")
    source = KafkaSource(
        topic, bootstrap=guarded.guarded_bootstrap, client=USER, value="text", stop="latest"
    )
    job.source(source).sink(sink)
    run(job, MemoryStore())
    assert sorted(record.value for record in sink.records) == ["a", "b"]


def test_a_sink_without_one_of_the_rights_says_which_topic_it_is(guarded: Broker) -> None:
    topics = Topics(guarded.bootstrap)
    target = topics.new()
    allow(topics, "TOPIC", target, "DESCRIBE", "DESCRIBE_CONFIGS")
    allow(topics, "TOPIC", "other", *OF_STAGING, prefix=True)
    allow(topics, "TRANSACTIONAL_ID", "other", *OF_TRANSACTIONS, prefix=True)
    sink = KafkaSink(target, bootstrap=guarded.guarded_bootstrap, client=USER, prefix="other")
    with pytest.raises(AccessDeniedError, match="TOPIC_AUTHORIZATION_FAILED"):
        run(copying([(1,)], sink), MemoryStore())
