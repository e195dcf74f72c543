"""The jobs that are compared, besides the built-in word count.

Invariant: but for `sessions` and `joins`, they use only what the revision in `base` has as well.
"""

from collections.abc import Iterator
from typing import Any

import tidelog
from tidelog import (
    ExpiredTimerInfo,
    Job,
    JobArguments,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tidelog.runtime.graph import KeyedStream


def _public(name: str, name_in_base: str) -> Any:
    return getattr(tidelog, name, None) or getattr(tidelog, name_in_base)


FileSink = _public("FileSink", "Files")
JsonLinesSource = _public("JsonLinesSource", "JsonLines")


def revenue(arguments: JobArguments) -> Job:
    """Rows of JSON lines, summed by a key: the job of the README."""
    job = Job("revenue")
    (
        job.source(JsonLinesSource(arguments.required_input()))
        .key_by(lambda row: row.country)
        .aggregate(lambda row: row.amount, lambda a, b: a + b)
        .sink(FileSink(arguments.output or "", fields=("country", "revenue")))
    )
    return job


def _timed_rows(job: Job, arguments: JobArguments) -> KeyedStream:
    """Rows of JSON lines with event times, by key."""
    rows = job.source(JsonLinesSource(arguments.required_input())).event_time(lambda row: row.ms)
    return rows.key_by(lambda row: row.user)


def windows(arguments: JobArguments) -> Job:
    """Summed in windows of a minute."""
    job = Job("windows")
    (
        _timed_rows(job, arguments)
        .window(60_000, value_of=lambda row: row.amount, combine=lambda a, b: a + b)
        .sink(FileSink(arguments.output or "", fields=("user", "window", "amount")))
    )
    return job


def sessions(arguments: JobArguments) -> Job:
    """Summed in sessions of some twenty rows."""
    from tidelog import Session  # noqa: PLC0415  # not in the base

    job = Job("sessions")
    (
        _timed_rows(job, arguments)
        .window(Session("10m"))
        .sum(lambda row: row.amount)
        .sink(FileSink(arguments.output or "", fields=("user", "start", "end", "amount")))
    )
    return job


def _orders_and_payments(arguments: JobArguments) -> tuple[Job, list[KeyedStream]]:
    job = Job("joins")
    return job, [
        job.source(JsonLinesSource(arguments.required_input(), name), name=name)
        .event_time(lambda row: row.ms)
        .key_by(lambda row: row.order)
        for name in ("orders", "payments")
    ]


def joins(arguments: JobArguments) -> Job:
    """Orders with their payments within a minute, two rows for most keys."""
    job, (orders, payments) = _orders_and_payments(arguments)
    pairs = orders.join(payments, (0, 60_000))
    paid = pairs.map(lambda pair: (pair[0].order, pair[0].amount, pair[1].cents))
    paid.sink(FileSink(arguments.output or "", fields=("order", "amount", "cents")))
    return job


class _Paid(StatefulProcessor):
    """The same for a key with one order: what comes first waits for the other until a timer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._order = handle.getValueState("order", "amount bigint, ms bigint")
        self._payment = handle.getValueState("payment", "cents bigint, ms bigint")

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for row in rows:
            if hasattr(row, "cents"):
                self._payment.update((row.cents, row.ms))
            else:
                self._order.update((row.amount, row.ms))
            self._handle.registerTimer(row.ms + 60_000)
            order, payment = self._order.get(), self._payment.get()
            if order and payment and 0 <= payment[1] - order[1] <= 60_000:
                yield key[0], order[0], payment[0]

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Any]:
        self._order.clear()
        self._payment.clear()
        return iter(())


def joins_by_hand(arguments: JobArguments) -> Job:
    """What `joins` writes, without joins."""
    job, (orders, payments) = _orders_and_payments(arguments)
    both = orders.union(payments).key_by(lambda row: row.order)
    paid = both.transform_with_state(_Paid, time_mode="event")
    paid.sink(FileSink(arguments.output or "", fields=("order", "amount", "cents")))
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
    users = JsonLinesSource(arguments.required_input(), arguments.include, follow=arguments.follow)
    (
        job.source(users)
        .key_by(lambda row: row.user)
        .transform_with_state(_Visits)
        .sink(FileSink(arguments.output or ""))
    )
    return job
