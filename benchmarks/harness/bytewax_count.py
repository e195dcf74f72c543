"""The same word count on Bytewax: same words, same buffers, same pre-aggregation.

Invariant: what Bytewax offers to be fast is used (batch operators, nothing emitted), and its
recovery store is on with an epoch of one second, as a checkpoint per second is on the other side.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import run_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir

from tidelog.bench.embedded.jobs import counted
from tidelog.bench.embedded.meter import rates, rss_mb
from tidelog.bench.embedded.run import RunSpec, scratch
from tidelog.bench.embedded.stages import Stages


class _Partition(StatefulSourcePartition[str, int]):
    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._position = 0

    def next_batch(self) -> list[str]:
        words = self._stages.read(self._position)
        if words is None:
            raise StopIteration
        self._position += len(words)
        return words

    def snapshot(self) -> int:
        return self._position


class _Source(FixedPartitionedSource[str, int]):
    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def list_parts(self) -> list[str]:
        return ["words"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Partition:
        return _Partition(self._stages)


class _Count(StatefulBatchLogic[int, Any, int]):
    __slots__ = ("_count",)

    def __init__(self, count: int | None) -> None:
        self._count = count or 0

    def on_batch(self, values: list[int]) -> tuple[tuple[()], bool]:
        self._count += sum(values)
        return (), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self._count


class _Null(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        pass


class _NullSink(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Null:
        return _Null()


def measure_bytewax(spec: RunSpec) -> dict[str, Any]:
    """Run a spec's workload on one Bytewax worker in this process; returns its figures."""
    stages = Stages(spec.words(), warm_s=spec.warm_s, seconds=spec.seconds, rate=spec.rate)
    flow = Dataflow("word_count")
    pairs = op.flat_map_batch("count_buffer", op.input("words", flow, _Source(stages)), counted)
    op.output("out", op.stateful_batch("count", pairs, _Count), _NullSink())
    with scratch() as directory:
        recovery = _recovery(directory)
        epoch = timedelta(seconds=spec.checkpoint_s)
        run_main(  # type: ignore[no-untyped-call]
            flow, epoch_interval=epoch, recovery_config=recovery
        )
    assert stages.start and stages.end and stages.filled
    found: dict[str, Any] = rates(stages.start, stages.end)
    found["fill_s"] = round(stages.filled.wall - (stages.began or stages.filled).wall, 1)
    found["rss_mb"] = round(rss_mb())
    return found


def _recovery(directory: Path) -> RecoveryConfig:
    init_db_dir(directory, 1)  # type: ignore[no-untyped-call]
    return RecoveryConfig(directory)  # type: ignore[no-untyped-call]
