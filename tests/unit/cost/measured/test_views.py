"""The engine of this process counts what the views have that Spark sums up."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.jobs import filled, store_of
from tests.unit.cost.measured.jobs import aggregated, windowed
from tests.unit.spark.source.reading import read
from tidelog.concurrency import no_progress
from tidelog.cost.measured.facts import (
    Held,
    Rows,
    Tally,
    Written,
)
from tidelog.cost.measured.history import read_history
from tidelog.cost.measured.local import LocalEngine
from tidelog.ids import SubtaskId

STORES = {"aggregate": aggregated, "windows": lambda: windowed(5), "every kind": filled}
KEY = ("kind", "first_seqno", "end_seqno", "raw_bytes", "stored_bytes")


@pytest.fixture(params=STORES)
def objects(request: pytest.FixtureRequest) -> Mapping[str, bytes]:
    return STORES[request.param]()


def test_blocks_are_those_of_the_view(objects: Mapping[str, bytes], tmp_path: Path) -> None:
    held: dict[Held, Tally] = defaultdict(Tally)
    distinct = {}
    for row in read(lay_out(tmp_path, objects), view="blocks"):
        key = tuple(row[name] for name in KEY)
        tally = Tally(1, row["end_seqno"] - row["first_seqno"], key[3], key[4])
        for slot in row["referenced_by"]:
            held[Held(slot, row["operator"], row["subtask"])] += tally
            distinct[row["operator"], row["subtask"], key] = tally
    once: dict[SubtaskId, Tally] = defaultdict(Tally)
    for (operator, subtask, _), tally in distinct.items():
        once[SubtaskId(operator, subtask)] += tally
    store = store_of(objects)
    _, checkpoints = asyncio.run(read_history(store))
    found = asyncio.run(LocalEngine(store).blocks(checkpoints, no_progress))
    assert {log: tally for log, tally in found.held.items() if tally.blocks} == held
    assert {who: tally for who, tally in found.distinct.items() if tally.blocks} == once


def test_changes_are_those_of_the_view(objects: Mapping[str, bytes], tmp_path: Path) -> None:
    store = store_of(objects)
    history, checkpoints = asyncio.run(read_history(store))
    newest = history.snapshots[-2]
    logs = {Held(newest.slot, *who) for who in newest.points}
    found = asyncio.run(LocalEngine(store).changes(checkpoints, logs, no_progress))
    rows: Counter[Written] = Counter()
    sizes: Counter[Written] = Counter()
    for row in read(lay_out(tmp_path, objects), view="changes", slot=newest.slot):
        log = Held(row["slot"], row["operator"], row["subtask"])
        written = Written(log, row["state_id"], row["op"] == "delete")
        rows[written] += 1
        sizes[written] += 4 + len(row["key"]) + len(row["value"] or b"") + 9
    assert found == {written: Rows(rows[written], sizes[written]) for written in rows}
    assert rows.total() == sum(p.seqno - p.upto for p in newest.points.values())
