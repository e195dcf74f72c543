"""The word count, a session window and an interval join on Bytewax, recovery on.

Invariant: what Bytewax offers to be fast is used (batch operators, nothing emitted); words are
counted per buffer before they are keyed, as on tidelog's side. Bytewax has no interval join: a
stateful operator keeps both sides of a key, as its users write it.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import run_main
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.operators.windowing import EventClock, SessionWindower, fold_window
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink

from tidelog_bench.embedded.meter import CLOCK, between, tree_mark
from tidelog_bench.embedded.words import counted
from tidelog_bench.peers.task import DELAY_MS, EventTask, ProgramTask, Task, figures

PACKAGE = "bytewax"
_NOW = datetime(2020, 1, 1, tzinfo=UTC)


def run(task: Task) -> dict[str, float]:
    """Count on one worker in this process; then again from the recovery store alone."""
    words = task.words()
    stages = task.stages(words)
    task.durable.mkdir()
    init_db_dir(task.durable, 1)
    source = _Source(stages.read)
    _run(_count_flow(source, _Count, []), task)
    assert stages.start and stages.end
    commits = between(source.snapshots, stages.start, stages.end)
    found = task.figures(stages.start, stages.end, commits)
    restored: list[tuple[str, int]] = []
    _run(_count_flow(_Source(lambda position: None), _CountAtEnd, restored), task)
    task.check(dict(restored), words, stages.end.records)
    return found


def run_events(task: EventTask) -> dict[str, float]:
    """Run the job on one worker in this process, to the end of its files."""
    drawn = task.write()
    task.durable.mkdir()
    task.results.mkdir()
    init_db_dir(task.durable, 1)
    flow = _events_flow(task)
    start = tree_mark(0)
    _run(flow, task)
    end = tree_mark(task.rows)
    return figures(task, drawn, start, end)


def _run(flow: Dataflow, task: ProgramTask) -> None:
    run_main(
        flow,
        epoch_interval=timedelta(seconds=task.checkpoint_s),
        recovery_config=RecoveryConfig(task.durable),
    )


class _Partition(StatefulSourcePartition[str, int]):
    def __init__(self, source: "_Source", position: int) -> None:
        self._source = source
        self._position = position

    def next_batch(self) -> list[str]:
        words = self._source.read(self._position)
        if words is None:
            raise StopIteration
        self._position += len(words)
        return list(words)

    def snapshot(self) -> int:
        # Once per epoch, when it closes.
        self._source.snapshots.append(CLOCK.monotonic())
        return self._position


class _Source(FixedPartitionedSource[str, int]):
    def __init__(self, read: Any) -> None:
        self.snapshots: list[float] = []
        self.read = read

    def list_parts(self) -> list[str]:
        return ["words"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Partition:
        return _Partition(self, resume_state or 0)


class _Count(StatefulBatchLogic[int, Any, int]):
    __slots__ = ("_count",)

    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[int]) -> tuple[Any, bool]:
        self._count += sum(values)
        return (), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self._count


class _CountAtEnd(_Count):
    """Says its count at the end of the data."""

    def on_eof(self) -> tuple[Any, bool]:
        return [self._count], StatefulBatchLogic.RETAIN


def _count_flow(source: _Source, logic: type[_Count], emitted: list[Any]) -> Dataflow:
    flow = Dataflow("word_count")
    pairs = op.flat_map_batch("count_buffer", op.input("words", flow, source), counted)
    op.output("out", op.stateful_batch("count", pairs, logic), TestingSink(emitted))
    return flow


def _events_flow(task: EventTask) -> Dataflow:
    flow = Dataflow("events")
    inputs = [_keyed(flow, task, number, name) for number, name in enumerate(task.sides)]
    if task.job == "session":
        results = _sessions(inputs[0], task.within_ms)
    else:
        both = op.merge("both", *inputs)
        results = op.stateful_batch("join", both, lambda state: _Join(task.within_ms, state))

    def line(result: tuple[str, Any]) -> tuple[str, str]:
        key, values = result
        return key, json.dumps(dict(zip(task.fields, (key, *values), strict=True)))

    op.output("out", op.map("line", results, line), FileSink(task.results / "part-0.jsonl"))
    return flow


def _keyed(flow: Dataflow, task: EventTask, number: int, name: str) -> Any:
    def parse(lines: list[str]) -> list[tuple[str, tuple[int, int, int]]]:
        rows = map(json.loads, lines)
        return [(row["key"], (number, row["time"], row["value"])) for row in rows]

    return op.flat_map_batch(
        f"parse_{name}", op.input(name, flow, FileSource(task.side(name))), parse
    )


def _sessions(rows: Any, gap_ms: int) -> Any:
    gap = timedelta(milliseconds=gap_ms)
    clock = EventClock(
        lambda row: datetime.fromtimestamp(row[1] / 1000, UTC),
        timedelta(milliseconds=DELAY_MS),
        now_getter=lambda: _NOW,
        to_system_utc=lambda timestamp: None,
    )
    out = fold_window(
        "sessions", rows, clock, SessionWindower(gap), lambda: None, _add, _merge, ordered=False
    )
    return op.map_value(
        "result", out.down, lambda found: (found[1][0], found[1][1] + gap_ms, found[1][2])
    )


def _add(session: Any, row: tuple[int, int, int]) -> Any:
    return _merge(session, (row[1], row[1], row[2]))


def _merge(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]


class _Join(StatefulBatchLogic[Any, Any, Any]):
    """Keeps rows of a key until the newest time of the other side is past their partners."""

    __slots__ = ("_newest", "_sides", "_within")

    def __init__(self, within_ms: int, state: Any) -> None:
        self._within = within_ms
        self._sides: tuple[list[Any], list[Any]]
        self._newest: list[int]
        self._sides, self._newest = state or (([], []), [0, 0])

    def on_batch(self, values: list[tuple[int, int, int]]) -> tuple[Any, bool]:
        found = []
        left, right = self._sides
        for side, at, value in values:
            self._newest[side] = max(self._newest[side], at)
            if side == 0:
                left.append((at, value))
                found += [(at, value, *b) for b in right if 0 <= b[0] - at <= self._within]
            else:
                right.append((at, value))
                found += [(*a, at, value) for a in left if 0 <= at - a[0] <= self._within]
        left_from = self._newest[1] - DELAY_MS - self._within
        right_from = self._newest[0] - DELAY_MS
        self._sides = (
            [row for row in left if row[0] >= left_from],
            [row for row in right if row[0] >= right_from],
        )
        return found, StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        left, right = self._sides
        return (list(left), list(right)), list(self._newest)
