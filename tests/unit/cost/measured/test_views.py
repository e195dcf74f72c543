"""What is read of logs is what the views of the data source have."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import filled, store_of
from tests.unit.cost.measured.jobs import aggregated, windowed
from tests.unit.spark.source.reading import read
from tests.unit.verify.stores import engine_on
from tidelog.concurrency import no_progress
from tidelog.cost.measured.facts import MeasuredLog, Tally
from tidelog.cost.measured.history import read_history
from tidelog.cost.measured.log import block_facts, read_log, subtasks_of
from tidelog.ids import SubtaskId

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
