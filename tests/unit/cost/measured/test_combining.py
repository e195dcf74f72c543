"""The combine factor is that of the retained checkpoints, whenever counting began.

What is read of logs is what the views of the data source have.
"""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.support.jobs import config, run, run_until_break, word_count
from tests.unit.cost.measured.facts import WHO, snapshot
from tests.unit.cost.measured.jobs import AGGREGATED_PER_S, KEYS, TICK_S, aggregated
from tests.unit.cost.measured.measuring import measured
from tidelog.cost.measured.facts import MeasuredSnapshot
from tidelog.cost.measured.history import read_history
from tidelog.cost.measured.operators import combine_of
from tidelog.cost.model.workload import expected_distinct
from tidelog.storage.memory import MemoryStore


def counted(slot: int, seqno: int, updates: int, **given: int) -> MeasuredSnapshot:
    """A checkpoint that counts updates."""
    bare = snapshot(slot, slot, seqno, **given)
    return replace(bare, points={WHO: replace(bare.points[WHO], updates=updates)})


def test_only_what_lies_between_checkpoints_counts() -> None:
    # The count began at the second change; before a restart something else was counted.
    found = [
        [counted(1, 10, 8), counted(2, 20, 38)],
        [counted(5, 30, 100, generation=4), counted(6, 40, 150, generation=4)],
        [counted(9, 900, 9_000)],
    ]
    assert combine_of(found).factor == (30 + 50) / (10 + 10)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([[counted(1, 10, 0), counted(2, 20, 0)]], "an older release wrote them. Next: "),
        ([[counted(1, 10, 5), counted(2, 10, 5)]], "nothing was changed"),
        ([[counted(1, 10, 5)]], "expected two checkpoints in a row"),
        ([], "expected two checkpoints in a row"),
    ],
)
def test_without_two_counts_there_is_a_reason(
    found: list[list[MeasuredSnapshot]], reason: str
) -> None:
    combine = combine_of(found)
    assert combine.factor is None and combine.reason is not None and reason in combine.reason


def test_the_write_buffer_of_a_real_job_combines_what_the_formula_says() -> None:
    combine = measured(aggregated()).combine
    # Records come ten times a second and are flushed once; a source moves its position as often.
    moves = 1 / TICK_S / 2
    changes = expected_distinct(KEYS, 0.0, AGGREGATED_PER_S) + 1
    assert combine.factor == pytest.approx((AGGREGATED_PER_S + moves) / changes, rel=0.05)


def test_a_restart_goes_on_counting() -> None:
    store, settings = MemoryStore(), config(retain=20, table="memory")
    run_until_break(store, word_count(breaks_at=200), settings)
    run(store, word_count(), settings)
    _, checkpoints = asyncio.run(read_history(store))
    assert len({checkpoint.author for checkpoint in checkpoints}) == 2
    counts = [[state.updates for _, state in each.subtasks()] for each in checkpoints]
    for before, after in pairwise(counts):
        assert all(one <= other for one, other in zip(before, after, strict=True))
    for _, state in checkpoints[-1].subtasks():
        assert state.updates >= state.seqno > 0
