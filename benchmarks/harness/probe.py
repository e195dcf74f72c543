"""A probe into a running job: where the time of each checkpoint went, and what stalled it.

Invariant: the library is not changed, its methods are timed from outside; `Probe.install` is
called in a child process that runs one job and ends.
"""

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidelog.bench.embedded.meter import latency
from tidelog.materialize.snapshot import TableSnapshots
from tidelog.runtime.checkpointing import CheckpointDriver
from tidelog.runtime.tasks.task import Task
from tidelog.state.backend import KeyedBackend

LOOP_LOOK_S = 0.005
GIL_LOOK_S = 0.002


@dataclass(frozen=True)
class Span:
    """One call, or one stall; seconds of the monotonic clock."""

    label: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass
class Phases:
    """One checkpoint from its trigger on."""

    triggered: float
    began: list[float] = field(default_factory=list)
    """When each task received the barrier ..."""
    captured: list[float] = field(default_factory=list)
    """... and had captured its state."""
    acknowledged: float = 0.0
    """When the last task's part was durable."""
    stored: float = 0.0

    def seconds(self) -> dict[str, float]:
        """How long each phase took."""
        return {
            "barrier": max(self.began) - self.triggered,
            "capture": max(self.captured) - max(self.began),
            "upload": self.acknowledged - max(self.captured),
            "manifest": self.stored - self.acknowledged,
            "total": self.stored - self.triggered,
        }


@dataclass
class Probe:
    """What was seen."""

    checkpoints: dict[int, Phases] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def install(self) -> None:
        """Time the methods that can hold a checkpoint up, and the gaps of loop and GIL."""
        probe, take, store = self, Task._checkpoint, CheckpointDriver._store
        acknowledged = CheckpointDriver.acknowledged

        async def timed_take(task: Task, barrier: Any) -> None:
            phases = probe.checkpoints.setdefault(barrier.checkpoint, Phases(barrier.started))
            phases.began.append(time.monotonic())
            await take(task, barrier)
            phases.captured.append(time.monotonic())

        def timed_acknowledged(driver: Any, checkpoint: int, task: Any, state: Any) -> None:
            probe.checkpoints[checkpoint].acknowledged = time.monotonic()
            acknowledged(driver, checkpoint, task, state)  # type: ignore[arg-type]

        async def timed_store(driver: Any, checkpoint: int, states: Any, *, final: bool) -> None:
            await store(driver, checkpoint, states, final=final)  # type: ignore[arg-type]
            probe.checkpoints[checkpoint].stored = time.monotonic()

        Task._checkpoint = timed_take  # type: ignore[method-assign,assignment]
        CheckpointDriver.acknowledged = timed_acknowledged  # type: ignore[method-assign,assignment]
        CheckpointDriver._store = timed_store  # type: ignore[method-assign,assignment]
        self._time(TableSnapshots, "prepare")
        self._time(TableSnapshots, "capture")
        self._time(TableSnapshots, "upload")
        self._time(KeyedBackend, "flush")
        threading.Thread(target=self._watch_gil, daemon=True).start()

    async def watch_loop(self) -> None:
        """Note when the event loop was late."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(LOOP_LOOK_S)
            self._gap("loop", before + LOOP_LOOK_S)

    def since(self, start: float) -> list[Phases]:
        """Completed checkpoints triggered after a moment."""
        return [p for p in self.checkpoints.values() if p.stored and p.triggered >= start]

    def report(self, start: float, slowest: int = 8) -> dict[str, Any]:
        """Latency by phase, stalls, and what overlapped the slowest checkpoints."""
        done = self.since(start)
        seconds = [phases.seconds() for phases in done]
        spans = [span for span in self.spans if span.end >= start]
        labels = sorted({span.label for span in spans})
        worst = sorted(done, key=lambda p: p.stored - p.triggered, reverse=True)[:slowest]
        return {
            "phases": {n: latency([s[n] for s in seconds]) for n in (seconds or [{}])[0]},
            "calls": {n: latency([s.seconds for s in spans if s.label == n]) for n in labels},
            "slowest": [self._explain(phases) for phases in worst],
        }

    def _explain(self, phases: Phases) -> dict[str, Any]:
        overlapping = [
            s for s in self.spans if s.end > phases.triggered and s.start < phases.stored
        ]
        longest: dict[str, float] = {}
        for span in overlapping:
            inside = min(span.end, phases.stored) - max(span.start, phases.triggered)
            longest[span.label] = max(longest.get(span.label, 0.0), inside)
        return {
            "ms": {name: round(s * 1e3, 1) for name, s in phases.seconds().items()},
            "longest_ms": {name: round(s * 1e3, 1) for name, s in sorted(longest.items())},
        }

    def _time(self, owner: type, name: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)
        label = f"{owner.__name__}.{name}"

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.monotonic()
            try:
                return inner(*args, **kwargs)
            finally:
                self.spans.append(Span(label, start, time.monotonic()))

        @functools.wraps(inner)
        async def timed_async(*args: Any, **kwargs: Any) -> Any:
            start = time.monotonic()
            try:
                return await inner(*args, **kwargs)
            finally:
                self.spans.append(Span(label, start, time.monotonic()))

        setattr(owner, name, timed_async if inspect.iscoroutinefunction(inner) else timed)

    def _watch_gil(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(GIL_LOOK_S)
            self._gap("gil", before + GIL_LOOK_S)

    def _gap(self, label: str, due: float) -> None:
        now = time.monotonic()
        if now - due > LOOP_LOOK_S:
            self.spans.append(Span(label, due, now))
