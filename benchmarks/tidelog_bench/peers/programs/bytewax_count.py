"""The word count on Bytewax, recovery on.

Invariant: what Bytewax offers to be fast is used (batch operators, nothing emitted); words are
counted per buffer before they are keyed, as on tidelog's side.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import run_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink

from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.embedded.words import counted
from tidelog_bench.peers.task import Task, check
from tidelog_bench.peers.usage import between, figures

PACKAGE = "bytewax"


class _Partition(StatefulSourcePartition[str, int]):
    def __init__(self, read: Any, position: int, snapshots: list[float]) -> None:
        self._read = read
        self._position = position
        self._snapshots = snapshots

    def next_batch(self) -> list[str]:
        words = self._read(self._position)
        if words is None:
            raise StopIteration
        self._position += len(words)
        return list(words)

    def snapshot(self) -> int:
        # Once per epoch, when it closes.
        self._snapshots.append(CLOCK.monotonic())
        return self._position


class _Source(FixedPartitionedSource[str, int]):
    def __init__(self, read: Any) -> None:
        self.snapshots: list[float] = []
        self._read = read

    def list_parts(self) -> list[str]:
        return ["words"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Partition:
        return _Partition(self._read, resume_state or 0, self.snapshots)


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


def run(task: Task) -> dict[str, float]:
    """Count on one worker in this process; then again from the recovery store alone."""
    words = task.words()
    stages = task.stages(words)
    task.durable.mkdir()
    init_db_dir(task.durable, 1)
    source = _Source(stages.read)
    _flow(source, _Count, [], task)
    assert stages.start and stages.end
    commits = between(source.snapshots, stages.start, stages.end)
    found = figures(stages.start, stages.end, commits, task.durable)
    restored: list[tuple[str, int]] = []
    _flow(_Source(lambda position: None), _CountAtEnd, restored, task)
    check("bytewax", dict(restored), words, stages.end.records)
    return found


def _flow(source: _Source, logic: type[_Count], emitted: list[Any], task: Task) -> None:
    flow = Dataflow("word_count")
    pairs = op.flat_map_batch("count_buffer", op.input("words", flow, source), counted)
    op.output("out", op.stateful_batch("count", pairs, logic), TestingSink(emitted))
    run_main(
        flow,
        epoch_interval=timedelta(seconds=task.checkpoint_s),
        recovery_config=RecoveryConfig(Path(task.durable)),
    )
