"""Objects and durations of checkpoints, with the real uploader in virtual time.

Processes are alike: one is run and stands for all.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.simulator.machine.loop import VirtualLoop, run_virtual
from tests.simulator.machine.process import Process, effects_of
from tests.simulator.scale.shape import Shape
from tidelog.changelog.cadence import Cadence
from tidelog.changelog.chain import SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.upload_config import UploadConfig
from tidelog.changelog.uploader import Uploader
from tidelog.effects import Effects
from tidelog.ids import Generation, SeqNo
from tidelog.storage.ledger import Ledger
from tidelog.storage.memory import MemoryStore

_CHECKPOINTS: Final = 4
_FLUSH_S: Final = 1.0
"""Write buffers of a busy job are flushed this often."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Figures of one checkpoint on average, for the whole job."""

    objects: float
    """Segments from one checkpoint to the next, and the manifest."""
    objects_unpacked: int
    """How many objects it would be with a file per subtask instead of segments."""
    seconds: float
    """From the barrier until the log of every subtask is durable."""
    segment_bytes: float


class _Line(MemoryStore):
    """A store behind a line of limited bandwidth; transfers take turns on it. Keeps no object."""

    def __init__(self, shape: Shape, effects: Effects) -> None:
        super().__init__("sim://scale")
        self._shape = shape
        self._clock = effects.clock
        self._free_at = 0.0
        self.segments = 0
        self.bytes = 0

    async def put(self, name: str, data: bytes) -> None:
        self.segments += 1
        self.bytes += len(data)
        now = self._clock.monotonic()
        self._free_at = max(now, self._free_at) + len(data) / self._shape.bandwidth
        await self._clock.sleep(self._free_at - now + self._shape.latency)


def checkpoints(shape: Shape, config: UploadConfig | None = None) -> Checkpoints:
    """Run the uploader of a process over a few checkpoints."""
    return run_virtual(_run(shape, config or UploadConfig()), VirtualLoop(rounds=10**8))


async def _run(shape: Shape, config: UploadConfig) -> Checkpoints:
    effects = effects_of(Process("p1", Random(0)), threads=False, ahead_ms=0, booted=0.0)
    line, cadence = _Line(shape, effects), Cadence(effects.clock)
    uploader = Uploader(line, effects, Ledger(), Generation(0), "process", cadence, config)
    chains = [SubtaskLogChain("operator", subtask) for subtask in range(shape.per_process)]
    value = Random(0).randbytes(max(1, round(shape.log_bytes_per_s * _FLUSH_S)))
    running = asyncio.ensure_future(uploader.run())
    took = []
    try:
        for number in range(1, _CHECKPOINTS + 1):
            due = number * shape.interval
            cadence.expect(due)
            for moment in _flushes(due - shape.interval, due):
                await effects.clock.sleep(moment - effects.clock.monotonic())
                for chain in chains:
                    _flush(uploader, chain, value)
            cadence.triggered(len(chains))
            for _ in chains:
                cadence.captured()
            await asyncio.gather(*(uploader.persist(chain.capture()) for chain in chains))
            took.append(effects.clock.monotonic() - due)
            for chain in chains:
                chain.truncate(chain.end or SeqNo(0))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return Checkpoints(
        objects=line.segments / _CHECKPOINTS * shape.processes + 1,
        objects_unpacked=shape.total + 1,
        seconds=sum(took) / len(took),
        segment_bytes=line.bytes / line.segments,
    )


def _flushes(after: float, until: float) -> Iterator[float]:
    """Moments of the flushes of an interval, the last one at its barrier."""
    count = max(1, round((until - after) / _FLUSH_S))
    return (after + (until - after) * number / count for number in range(1, count + 1))


def _flush(uploader: Uploader, chain: SubtaskLogChain, value: bytes) -> None:
    first = chain.end or SeqNo(0)
    uploader.submit(chain, ChangeBatch(first, [first.to_bytes(8, "big")], [value]))
