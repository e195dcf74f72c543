"""The combine factor is that of the retained checkpoints, whenever counting began.

What is read of logs is what the views of the data source have.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import config, filled, run, run_until_break, store_of, word_count
from tests.unit.cost.measured.facts import WHO, snapshot
from tests.unit.cost.measured.jobs import AGGREGATED_PER_S, KEYS, TICK_S, aggregated, windowed
from tests.unit.cost.measured.measuring import measured
from tests.unit.spark.source.reading import read
from tests.unit.verify.stores import engine_on
from tidelog.concurrency import no_progress
from tidelog.cost.measured.facts import MeasuredLog, MeasuredSnapshot, Tally
from tidelog.cost.measured.history import read_history
from tidelog.cost.measured.log import block_facts, read_log, subtasks_of
from tidelog.cost.measured.operators import combine_of
from tidelog.cost.model.workload import expected_distinct
from tidelog.ids import SubtaskId
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


STORES = {"aggregate": aggregated, "windows": lambda: windowed(5), "every kind": filled}
KEY = ("kind", "first_seqno", "end_seqno", "raw_bytes", "stored_bytes")


@pytest.fixture(params=STORES)
def objects(request: pytest.FixtureRequest) -> Mapping[str, bytes]:
    return STORES[request.param]()


def test_blocks_are_those_of_the_view(objects: Mapping[str, bytes], tmp_path: Path) -> None:
    held: dict[MeasuredLog, Tally] = defaultdict(Tally)
    distinct = {}
    for row in read(lay_out(tmp_path, objects), view="blocks"):
        key = tuple(row[name] for name in KEY)
        tally = Tally(1, row["end_seqno"] - row["first_seqno"], key[3], key[4])
        for slot in row["referenced_by"]:
            held[MeasuredLog(slot, row["operator"], row["subtask"])] += tally
            distinct[row["operator"], row["subtask"], key] = tally
    once: dict[SubtaskId, Tally] = defaultdict(Tally)
    for (operator, subtask, _), tally in distinct.items():
        once[SubtaskId(operator, subtask)] += tally
    store = store_of(objects)
    _, checkpoints = asyncio.run(read_history(store))
    states = subtasks_of(checkpoints)
    found = block_facts(asyncio.run(read_log(engine_on(store), states, no_progress)))
    assert {log: tally for log, tally in found.by_log.items() if tally.blocks} == held
    assert {who: tally for who, tally in found.distinct.items() if tally.blocks} == once


def test_deletes_are_those_of_the_view(objects: Mapping[str, bytes], tmp_path: Path) -> None:
    store = store_of(objects)
    history, checkpoints = asyncio.run(read_history(store))
    newest = history.snapshots[-2]
    states = {log: s for log, s in subtasks_of(checkpoints).items() if log.slot == newest.slot}
    operators = {log.operator for log in states}
    found = block_facts(asyncio.run(read_log(engine_on(store), states, no_progress, operators)))
    deletes = Counter(
        MeasuredLog(row["slot"], row["operator"], row["subtask"])
        for row in read(lay_out(tmp_path, objects), view="changes", slot=newest.slot)
        if row["op"] == "delete"
    )
    # The log may begin with changes that are in the table already; the view leaves them out.
    for log, tally in found.by_log.items():
        assert tally.deletes >= deletes[log]
        if tally.changes == states[log].seqno - states[log].upto:
            assert tally.deletes == deletes[log]
    assert sum(tally.deletes for tally in found.by_log.values()) > 0 or not deletes
