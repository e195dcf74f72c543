"""Measures stores in memory with the engine of this process."""

import asyncio
from collections.abc import Mapping

from tests.support.jobs import store_of
from tidelog.cost.measured.analysis import Question, measure
from tidelog.cost.measured.local import LocalEngine
from tidelog.cost.measured.report import OperatorReport, Report
from tidelog.cost.measured.windows import Span
from tidelog.storage.port import ObjectStore


def question(span: Span | None = None) -> Question:
    """What a user asks without options, or with those for windows."""
    return Question(span=span)


def measured(objects: Mapping[str, bytes] | ObjectStore, span: Span | None = None) -> Report:
    """The report on a store with these objects."""
    store = store_of(objects) if isinstance(objects, Mapping) else objects
    return asyncio.run(measure(store, LocalEngine(store), question(span)))


def operator(report: Report, id: str) -> OperatorReport:
    """One operator of a report."""
    return next(each for each in report.operators if each.id == id)
