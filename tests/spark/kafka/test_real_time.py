"""State of a query in Spark's real-time mode, whose tasks write while its batch goes on."""

import time
from collections import Counter

import pytest

from tests.spark.kafka.real_time import COUNTS, WORDS
from tests.spark.support.application import Application, Job
from tests.spark.support.census import assert_complete
from tests.spark.support.place import Place
from tests.spark.support.session import PATIENCE_S
from tests.spark.support.zoo.query import Topics
from tests.support.kafka import Topics as Cluster

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]

SLOTS = "local[8]"
"""All tasks of a batch run at once: two that read and three that count."""


def last_counts(cluster: Cluster, topic: str) -> dict[str, int]:
    """The last count of each word: the sink writes counts again after a kill."""
    return {each.key().decode(): int(each.value()) for each in cluster.read_all(topic)}


def test_a_killed_query_in_real_time_mode_counts_every_word_once(
    topics: Cluster, given: dict[str, str], place: Place
) -> None:
    there = Topics(topics.bootstrap, topics.new())
    topics.new(2, there.name(WORDS))
    topics.new(1, there.name(COUNTS))
    job = Job(place, "words of a topic", follow=True, topics=there)
    expected: Counter[str] = Counter()

    def started() -> Application:
        return Application((job,), given, SLOTS, module="tests.spark.kafka.real_time")

    def write_and_wait(application: Application) -> None:
        """Until the last count of each word is in the topic."""
        words = [f"word {number % 50}" for number in range(500)]
        topics.write(there.name(WORDS), words)
        expected.update(words)
        give_up = time.monotonic() + PATIENCE_S
        while last_counts(topics, there.name(COUNTS)) != expected:
            assert time.monotonic() < give_up, application.log()[-6000:]
            time.sleep(0.2)

    for batches in (1, 3, 5):
        with started() as application:
            write_and_wait(application)
            application.await_batches(batches)
            # In a batch: what it counts now is lost with it, and counted again by the next start.
            write_and_wait(application)
            application.kill()
    with started() as application:
        application.await_batches(8)  # those of the words, and one that has none to count
        assert last_counts(topics, there.name(COUNTS)) == expected
    assert_complete(place.checkpoint)
