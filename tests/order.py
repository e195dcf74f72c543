"""The order of the tests of several workers: each worker begins with tests that take long.

`--dist worksteal` gives every worker an equal part of the list, and one that is done takes over
the end of another's part. So tests that take long stand at the beginning of a part: what is left
for the end of the run is short, and no worker still has minutes to go while the others are idle.
Tests that share a JVM or a server stay together: those with a Spark session begin in one worker, so
that others start a second one only for what is left in the end; the first line has JVMs of its own.
"""

import os
from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

import pytest

LONG = (
    (
        "tests/spark/wordcount/test_wordcount.py",
        "tests/spark/test_notebook.py",
        "tests/spark/bench/test_counted_file_system.py",
        "tests/spark/s3a/",
        "tests/unit/spark/",
        "tests/golden/",
    ),
    ("tests/spark/",),
    ("tests/simulation/", "tests/property/"),
    (
        "tests/process/test_memory.py",
        "tests/process/",
        "tests/kafka/",
        "tests/first_jobs/",
        "tests/faults/",
    ),
)
"""Paths of tests that take long on average, those of a line in this order; a test is of the first
line that fits, and of the first path in it."""

T = TypeVar("T")


def begin_with_long_tests(items: list[pytest.Item]) -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long: list[list[pytest.Item]] = [[] for _ in LONG]
    short: list[pytest.Item] = []
    for item in items:
        group = next((n for n, paths in enumerate(LONG) if item.nodeid.startswith(paths)), None)
        (short if group is None else long[group]).append(item)
    for paths, tests in zip(LONG, long, strict=True):
        tests.sort(key=lambda test: [not test.nodeid.startswith(path) for path in paths])
    items[:] = dealt(long, short, workers)


def dealt(long: Sequence[Sequence[T]], short: Sequence[T], workers: int) -> list[T]:
    """All tests, so that equal parts of the list, one per worker, each begin with long ones."""
    rest = list(short)
    total = sum(map(len, long)) + len(rest)
    order: list[T] = []
    for worker in range(workers):
        end = len(order) + (total - len(order)) // (workers - worker)
        order.extend(chain.from_iterable(long[worker::workers]))
        room = max(0, end - len(order))
        order += rest[:room]
        del rest[:room]
    return order
