"""What the store is asked for between the completions of two checkpoints.

Invariant: what is counted belongs to a whole number of checkpoints, at least one.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.runtime.status.distribution import percentile
from tidelog.storage import object_names
from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.embedded.running import Running
from tidelog_bench.store.modelled import Totals, Traffic, Write
from tidelog_bench.store.pricing import dollars_per_day

_POLL_S: Final = 0.002
_TABLES: Final = (object_names.TABLES, object_names.MATERIALIZATIONS)


class CheckpointWindow:
    """Watches a run, and ends it when enough checkpoints were counted.

    Counting begins with the completion of checkpoint number `settling`. It ends after `count` more,
    or with the first one that completes after `seconds`.
    """

    def __init__(self, *, settling: int, count: int, seconds: float) -> None:
        self._settling = settling
        self._count = count
        self._seconds = seconds
        self._moments: list[tuple[int, Totals]] = []
        self._writes: Sequence[Write] = ()
        self._durations: list[float] = []

    async def watch(self, running: Running) -> None:
        """Watch the job until enough checkpoints were counted, and end the measured time."""
        while (made := running.runner.incarnation) is None or running.stages.start is None:
            await CLOCK.sleep(_POLL_S)
        driver = made.driver
        while not self._enough():
            await CLOCK.sleep(_POLL_S)
            completed = driver.metrics.completed
            if completed >= self._settling and completed > self._last():
                self._moments.append((completed, running.store.model.totals()))
        self._writes = list(running.store.writes)
        self._durations = list(driver.metrics.durations_s)[-self.counted :]
        running.stages.finish()

    @property
    def counted(self) -> int:
        """How many checkpoints lie between the two completions."""
        return self._moments[-1][0] - self._moments[0][0]

    @property
    def traffic(self) -> Traffic:
        """What the store was asked for during these checkpoints."""
        return self._moments[-1][1].since(self._moments[0][1])

    def figures(self) -> dict[str, float]:
        """Per checkpoint; dollars as if there was one a second, whatever this machine can do."""
        begin, end = self._moments[0][1].at, self._moments[-1][1].at
        objects = [write.name for write in self._writes if begin < write.ended <= end]
        tables = sum(name.startswith(_TABLES) for name in objects)
        log = sum(name.startswith(object_names.SEGMENTS) for name in objects)
        traffic, counted = self.traffic, self.counted
        a_second = Traffic(
            seconds=counted,
            requests=traffic.requests,
            uploaded_bytes=traffic.uploaded_bytes,
            downloaded_bytes=traffic.downloaded_bytes,
            stored_bytes=traffic.stored_bytes,
        )
        return {
            "objects_per_checkpoint": len(objects) / counted,
            "table_objects_per_checkpoint": tables / counted,
            "log_objects_per_checkpoint": log / counted,
            "requests_per_checkpoint": traffic.all_requests / counted,
            "kb_per_checkpoint": traffic.uploaded_bytes / 1e3 / counted,
            "dollars_per_day": dollars_per_day(a_second),
            "checkpoints_per_s": counted / traffic.seconds,
            "p50_ms": percentile(self._durations, 0.5) * 1e3,
        }

    def _last(self) -> int:
        return self._moments[-1][0] if self._moments else 0

    def _enough(self) -> bool:
        if len(self._moments) < 2:
            return False
        elapsed = self._moments[-1][1].at - self._moments[0][1].at
        return self.counted >= self._count or elapsed >= self._seconds
