"""A report says what is missing and never guesses; damage and dropped checkpoints never count."""

import asyncio
from typing import Any, ClassVar

import pytest

from tests.support.damage import last_segment
from tests.support.jobs import filled, store_of, virtual_effects
from tests.unit.cost.measured.facts import WHO, blocks, steady
from tests.unit.cost.measured.jobs import aggregate, left_by, measured, operator
from tidelog import CorruptObjectError, RestoreError
from tidelog.checkpoint.manifest import OperatorState, StateInfo
from tidelog.concurrency import Progress
from tidelog.cost.measured.analysis import measure
from tidelog.cost.measured.history import read_history
from tidelog.cost.measured.operators import report_operators
from tidelog.cost.measured.report import OverheadReport
from tidelog.engines import LocalEngine, WorkerConfig
from tidelog.ids import Slot
from tidelog.storage import object_names


def test_figures_of_a_steady_log_are_exact() -> None:
    snapshots = steady(45, 10)
    count = OperatorState(WHO.operator, 1, (StateInfo(0, "count", "value", ("n int",)),), ())
    (found,) = report_operators(snapshots, [count], blocks(snapshots))
    assert found.changes_per_s == 5
    assert found.bytes_per_change is not None
    assert (found.bytes_per_change.raw, found.bytes_per_change.stored) == (20, 10)
    assert found.interval_s == 10
    assert found.peak is not None
    assert found.peak.predicted_bytes == found.peak.measured_bytes == 5 * 10 * 10
    assert found.peak.ratio == 1
    assert found.most_log_bytes == 500


def test_a_store_with_few_checkpoints_has_a_report_without_comparison() -> None:
    report = measured(filled())
    assert not report.compared
    found = operator(report, "process")
    assert found.missing is not None and "tidelog run ... --retain" in found.missing
    assert found.bytes_per_change is not None


def test_a_missing_segment_is_damage_not_a_smaller_log() -> None:
    objects = dict(left_by(aggregate))
    newest = max(slot for name in objects if (slot := object_names.slot_of(name)) is not None)
    del objects[last_segment(objects, newest)]
    with pytest.raises(CorruptObjectError, match="tidelog inspect"):
        measured(objects)


class Dropping(LocalEngine):
    """The engine of this process, while the job drops its oldest checkpoints and their log."""

    gone: ClassVar[list[str]] = []

    async def run(self, units: Any, progress: Progress) -> list[Any]:
        for name in self.gone:
            await self.store.delete(name)
        return await super().run(units, progress)


def test_checkpoints_that_are_dropped_meanwhile_are_left_out() -> None:
    store = store_of(left_by(aggregate))
    _, checkpoints = asyncio.run(read_history(store))
    log = {
        each.slot: {part.segment for _, state in each.subtasks() for part in state.log}
        for each in checkpoints
    }
    newest = log[checkpoints[-1].slot]
    left = [slot for slot, segments in log.items() if segments <= newest]
    dropped = set(log) - set(left)
    assert dropped and len(left) > 1

    def measured_while_dropping(*slots: int) -> OverheadReport:
        store = store_of(left_by(aggregate))
        engine = Dropping(store, virtual_effects(), WorkerConfig(store.url))
        Dropping.gone = [object_names.checkpoint(Slot(slot)) for slot in slots]
        Dropping.gone += {name for slot in slots for name in log[Slot(slot)]} - (
            newest if checkpoints[-1].slot not in slots else set()
        )
        return asyncio.run(measure(store, engine))

    report = measured_while_dropping(*dropped)
    assert (report.checkpoints, report.first_slot) == (len(left), left[0])
    assert f"left out: {len(dropped)} checkpoints" in report.notes[0]
    with pytest.raises(RestoreError, match="retain"):
        measured_while_dropping(*log)


def test_space_amplification_is_what_is_stored_over_the_newest_tables() -> None:
    objects = left_by(aggregate)
    report = measured(objects)
    stored = sum(map(len, objects.values()))
    assert report.stored_bytes == stored
    assert report.space_amplification == stored / report.table_bytes
    assert report.table_bytes > 0
