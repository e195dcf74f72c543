"""Measures stores in memory with the engine of this process."""

import asyncio
from collections.abc import Mapping

from tests.support.jobs import store_of
from tests.unit.verify.stores import engine_on
from tidelog.cost.measured.analysis import measure
from tidelog.cost.measured.report import OperatorReport, OverheadReport
from tidelog.storage.port import ObjectStore


def measured(objects: Mapping[str, bytes] | ObjectStore) -> OverheadReport:
    """The report on a store with these objects."""
    store = store_of(objects) if isinstance(objects, Mapping) else objects
    return asyncio.run(measure(store, engine_on(store)))


def operator(report: OverheadReport, id: str) -> OperatorReport:
    """One operator of a report."""
    return next(each for each in report.operators if each.id == id)
