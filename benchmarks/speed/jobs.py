"""The jobs that are compared, besides the built-in word count.

Invariant: but for `sessions`, they use only what the revision in `base` has as well.
"""

from collections.abc import Iterator
from typing import Any

from tidelog import (
    Files,
    Job,
    JobArguments,
    JsonLines,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)


def revenue(arguments: JobArguments) -> Job:
    """Rows of JSON lines, summed by a key: the job of the README."""
    job = Job("revenue")
    (
        job.source(JsonLines(arguments.required_input()))
        .key_by(lambda row: row.country)
        .aggregate(lambda row: row.amount, lambda a, b: a + b)
        .sink(Files(arguments.output or "", fields=("country", "revenue")))
    )
    return job


def windows(arguments: JobArguments) -> Job:
    """Rows of JSON lines, summed in windows of a minute by key."""
    job = Job("windows")
    (
        job.source(JsonLines(arguments.required_input()))
        .event_time(lambda row: row.ms)
        .key_by(lambda row: row.user)
        .window(60_000, value_of=lambda row: row.amount, combine=lambda a, b: a + b)
        .sink(Files(arguments.output or "", fields=("user", "window", "amount")))
    )
    return job


def sessions(arguments: JobArguments) -> Job:
    """Rows of JSON lines, summed in sessions of some twenty rows by key."""
    from tidelog import Session  # noqa: PLC0415  # not in the base

    job = Job("sessions")
    (
        job.source(JsonLines(arguments.required_input()))
        .event_time(lambda row: row.ms)
        .key_by(lambda row: row.user)
        .window(Session("10m"))
        .sum(lambda row: row.amount)
        .sink(Files(arguments.output or "", fields=("user", "start", "end", "amount")))
    )
    return job


class _Visits(StatefulProcessor):
    """Counts the rows of a key and emits nothing, so that a restart has nothing to write."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._visits = handle.getValueState("visits", "visits bigint")

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        before = self._visits.get()
        self._visits.update(((before[0] if before else 0) + sum(1 for _ in rows),))
        return iter(())


def visits(arguments: JobArguments) -> Job:
    """A row of state for each user: what restarts restore."""
    job = Job("visits")
    users = JsonLines(arguments.required_input(), arguments.include, follow=arguments.follow)
    (
        job.source(users)
        .key_by(lambda row: row.user)
        .transform_with_state(_Visits)
        .sink(Files(arguments.output or ""))
    )
    return job
