"""What a running job drops while its store is verified is no damage."""

import pytest

from tests.support.faulty_store import Fault, FaultKind, FaultyStore
from tests.support.jobs import store_of, virtual_effects
from tests.unit.verify.stores import needed_by, report_on, small, verdicts, with_objects
from tidelog.checkpoint.manifest import Author, Start, encode_entry
from tidelog.errors import StoreUnreachableError
from tidelog.ids import Generation, Slot
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.verify.report import VerifyReport

OLDEST, NEWEST = 5, 8


class Dropping(MemoryStore):
    """A job drops checkpoints as soon as someone reads the newest one."""

    dropped: tuple[int, ...] = ()

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        if name == f"checkpoints/{NEWEST:08d}.json":
            left = {n for n in range(OLDEST, NEWEST + 1) if n not in self.dropped}
            for gone in small():
                if needed_by(small(), gone) and not needed_by(small(), gone) & left:
                    await self.delete(gone)
        return data


def report_while_dropping(*dropped: int) -> VerifyReport:
    store = with_objects(Dropping(), small())
    store.dropped = dropped
    return report_on(store)


@pytest.mark.parametrize("dropped", [(5,), (5, 6), (5, 6, 7)])
def test_checkpoints_that_are_dropped_meanwhile_are_gone_and_no_problem(
    dropped: tuple[int, ...],
) -> None:
    report = report_while_dropping(*dropped)
    assert report.problems == () and report.passed
    expected = {n: "gone" if n in dropped else "sound" for n in range(OLDEST, NEWEST + 1)}
    assert verdicts(report) == expected
    assert not {n for _, _, at in report.unchecked for n in at} & set(dropped)


def test_nothing_is_passed_when_every_checkpoint_is_gone() -> None:
    report = report_while_dropping(5, 6, 7, 8)
    assert set(verdicts(report).values()) == {"gone"}
    assert report.problems == () and not report.passed


class Restarting(MemoryStore):
    """A new start of the job writes its slot, and a segment, while the store is listed."""

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        if name == f"checkpoints/{NEWEST:08d}.json":
            author = Author(Generation(9), "attempt")
            await self.put("checkpoints/00000009.json", encode_entry(Start(Slot(9), author, 0, "")))
            await self.put(object_names.segment(Generation(9), "process", 1), b"its first segment")
        return data


def test_a_job_that_starts_meanwhile_is_no_gap_between_generations() -> None:
    report = report_on(with_objects(Restarting(), small()))
    assert report.problems == () and report.passed


def test_a_store_out_of_reach_is_an_error_and_no_damage() -> None:
    effects = virtual_effects()
    fault = Fault(FaultKind.FAIL, operation="get", prefix="segments/")
    with pytest.raises(StoreUnreachableError):
        report_on(FaultyStore(store_of(small()), [fault], effects.clock, effects.rng))
