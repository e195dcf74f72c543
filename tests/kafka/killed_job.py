"""A job for tests that kill it: numbers, slowly until it is released, into topics of Kafka.

The file that TIDELOG_TEST_RELEASE names releases it; TIDELOG_TEST_KAFKA has the brokers and the
topics of an exactly-once and of an at-least-once sink.
"""

import os
import time
from pathlib import Path
from typing import Any

from tests.support.depth import more_in_depth
from tidelog import Job, JobArguments, KafkaSink, Source, SplitReader

SPLITS = ("a", "b", "c")
TOTAL = more_in_depth(6_000, 20_000)


class Numbers(Source):
    """Counts to a total in each split."""

    def discover(self) -> list[str]:
        return list(SPLITS)

    def open(self, split: str, position: Any) -> "NumbersReader":
        return NumbersReader(split, position or 0)


class NumbersReader(SplitReader):
    delay_s = 0.02

    def __init__(self, split: str, position: int) -> None:
        self.position = position
        self._split = split

    def read(self) -> list[Any] | None:
        if self.position == TOTAL:
            return None
        if Path(os.environ["TIDELOG_TEST_RELEASE"]).exists():
            end = min(self.position + 2_000, TOTAL)
        else:
            time.sleep(0.01)
            end = min(self.position + 5, TOTAL - 100)
        records = [(self._split, number) for number in range(self.position, end)]
        self.position = end
        return records


def numbers(arguments: JobArguments) -> Job:
    bootstrap, once, at_least_once = os.environ["TIDELOG_TEST_KAFKA"].split()
    job = Job("numbers")
    numbers = job.source(Numbers())
    for topic in (once, at_least_once):
        sink = KafkaSink(
            topic,
            bootstrap=bootstrap,
            key=lambda record: record[0],
            value=lambda record: str(record[1]),
            exactly_once=topic == once,
            prefix=topic,
        )
        numbers.sink(sink, name=topic)
    return job
