"""Jobs of the embedded runtime over the topics that queries of Spark read; `--input` is a file that
says which.
"""

import json
from operator import attrgetter
from typing import Any

from tests.spark.support.zoo.pairs import Pairs
from tests.spark.support.zoo.query import Topics
from tidelog import FileSink, Job, JobArguments, KafkaRecord, KafkaSource, Row, Stream


def totals(arguments: JobArguments) -> Job:
    """Count, sum and greatest value of each key, when the topic has been read."""

    def one(record: KafkaRecord) -> tuple[str, tuple[int, int, int]]:
        return record.value["k"], (1, record.value["v"], record.value["v"])

    def added(left: tuple[int, int, int], right: tuple[int, int, int]) -> tuple[int, int, int]:
        return left[0] + right[0], left[1] + right[1], max(left[2], right[2])

    def row(total: tuple[str, tuple[int, int, int]]) -> dict[str, Any]:
        key, (n, summed, largest) = total
        return {"k": key, "n": n, "sum": summed, "max": largest}

    job = Job("totals")
    rows = job.source(_source(arguments, "events")).map(one).key_by(lambda pair: pair[0])
    rows.aggregate(lambda pair: pair[1], added).map(row).sink(_files(arguments))
    return job


def pairs(arguments: JobArguments) -> Job:
    """The rows of both sides that are near in time, as they come."""

    def side(name: str) -> Stream:
        def row(record: KafkaRecord) -> Row:
            return Row(side=name, **record.value)

        return job.source(_source(arguments, name), name=name).map(row, name=f"rows-{name}")

    job = Job("pairs")
    both = side("left").union(side("right")).key_by(attrgetter("k"))
    both.transform_with_state(Pairs).map(Row.asDict).sink(_files(arguments))
    return job


def _source(arguments: JobArguments, name: str) -> KafkaSource:
    topics = Topics(**json.loads((arguments.required_input() / "topics").read_text()))
    return KafkaSource(topics.name(name), bootstrap=topics.bootstrap, stop="latest", value="json")


def _files(arguments: JobArguments) -> FileSink:
    assert arguments.output is not None
    return FileSink(arguments.output, format="json")
