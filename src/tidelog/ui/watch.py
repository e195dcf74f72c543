"""Follows a store and the job that runs on it, and makes the document of what they are now.

Invariants: the store is read no more often than the pace allows; the job is asked through its
control socket, which costs nothing, and is shown also while the store was never read.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.manifest import Start
from tidelog.effects import Clock
from tidelog.errors import ControlError, TidelogError
from tidelog.ids import Slot
from tidelog.runtime.control.client import ask
from tidelog.runtime.control.protocol import Done, Request
from tidelog.storage.port import RequestMetrics
from tidelog.ui.costs import bill_part, restore_part
from tidelog.ui.document import Document, RestoreReads
from tidelog.ui.history import Downsampled, SeenCheckpoints, SeenMaterializations
from tidelog.ui.live import Sample, completed_points, figure, live_part, new_tables, status_in
from tidelog.ui.stored import StoreReader, StoreView, problems, slot_parts, stored_points

JOB_S: Final = 2.0
"""How often a running job is asked."""
ON_DEMAND_S: Final = 2.0
"""The shortest time between two reads of the store that somebody asks for."""
_SLOTS_S: Final = 10.0
"""The same without that, with a job that runs here: its new checkpoints are known anyway."""
_SLOTS_ALONE_S: Final = 30.0
_OBJECTS_S: Final = 60.0
"""The shortest time between two lists of all objects, for each begun thousand of them: a list costs
a request per thousand, so that a large store costs no more an hour than a small one."""
_LIST_PAGE: Final = 1000
"""Objects of one LIST request."""
_PATIENCE_S: Final = 5.0
"""How long its answer may take."""


@dataclass(slots=True)
class Watcher:
    """What is known of one store and its job."""

    reader: StoreReader
    clock: Clock
    ask: Callable[[Request], Awaitable[Done]] = ask
    _view: StoreView | None = None
    _done: Done | None = None
    """The job's last answer; None when no job answers."""
    _looks: tuple[Sample, ...] = ()
    """The last two answers with figures, oldest first; none when no job answers."""
    _silence: str = ""
    """Why no job answers."""
    _samples: Downsampled = field(default_factory=Downsampled)
    _seen_checkpoints: SeenCheckpoints = field(default_factory=SeenCheckpoints)
    _materialized: SeenMaterializations = field(default_factory=SeenMaterializations)

    async def look_at_job(self) -> None:
        """Ask the job on the store, if one runs here."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                done = await self.ask(Request(self.reader.store.url, "observe"))
            look = Sample(self.clock.now_ms(), status_in(done))
        except TimeoutError:
            self._lost(f"The job on this store has not answered for {_PATIENCE_S:g} s.")
        except ControlError as error:
            self._lost(_silence(error))
        except TidelogError as error:
            self._lost(f"The job that runs on this store does not show its figures: {error}")
        else:
            self._done, self._looks, self._silence = done, (*self._looks[-1:], look), ""
            self._samples.add(look.to_keep())
            self._seen_checkpoints.add(completed_points(done))
            self._materialized.add_events(new_tables(done))

    def _lost(self, why: str) -> None:
        self._done, self._looks, self._silence = None, (), why

    def due(self, *, on_demand: bool) -> bool:
        """Whether it is time to read the store, or would be on demand."""
        view = self._view
        interval_s = _SLOTS_S if self._done is not None else _SLOTS_ALONE_S
        return view is None or self._passed_s(view.read_ms) >= (
            ON_DEMAND_S if on_demand else interval_s
        )

    def _passed_s(self, since_ms: int) -> float:
        # Of a clock that was set back by an hour an hour has passed: it is time to look.
        return abs(self.clock.now_ms() - since_ms) / 1000

    def _objects_due(self, view: StoreView | None) -> bool:
        if view is None:
            return True
        interval_s = _OBJECTS_S * (1 + len(view.inventory.sizes) // _LIST_PAGE)
        return self._passed_s(view.objects_ms) >= interval_s

    async def read(self) -> None:
        """Read the store; raises what the store raises."""
        view = await self.reader.read(objects=self._objects_due(self._view))
        if view.anew:
            self._samples, self._seen_checkpoints = Downsampled(), SeenCheckpoints()
            self._materialized = SeenMaterializations()
        self._view = view
        self._seen_checkpoints.add(stored_points(view))
        self._materialized.add(view.slots.checkpoints)

    def document(self, unread: tuple[Finding, ...]) -> Document:
        """What is known now; `unread` says what is wrong with reading the store."""
        view, now_ms = self._view, self.clock.now_ms()
        status, done = self._looks[-1].status if self._looks else None, self._done
        newest = view.slots.newest if view is not None else None
        is_final = newest is not None and newest.final
        generation = view.slots.generation if view is not None else None
        jobs = [entry.job for _, entry in sorted(view.slots.entries.items())] if view else []
        job, phase = jobs[-1] if jobs else None, "finished" if is_final else "not running here"
        if status is not None:
            job, phase = status["job"], status.get("phase", "running")
            generation = figure(status, "generation")
        started_ms = _started_ms(view, generation) if view is not None else None
        read_ms, objects_ms = (view.read_ms, view.objects_ms) if view is not None else (0, 0)
        return Document(
            release=version("tidelog"),
            url=self.reader.store.url,
            at_ms=now_ms,
            job=job,
            generation=generation,
            started_ms=started_ms,
            phase=phase,
            notices=(self._silence,) if status is None and not is_final and self._silence else (),
            problems=(
                *unread,
                *(problems(view, running=done is not None) if view is not None else ()),
            ),
            live=None if done is None else live_part(done, self._looks, self._samples.all()),
            checkpoints=tuple(
                self._seen_checkpoints.all(view.slots.checkpoints if view is not None else {})
            ),
            retained=tuple(slot_parts(view)) if view is not None else (),
            materialized=tuple(self._materialized.all()),
            restore=restore_part(view) if view is not None else None,
            bill=bill_part(view, status, started_ms, now_ms) if view is not None else None,
            reads=reads_of(read_ms, objects_ms, self.reader.store.request_metrics),
        )


def _silence(error: ControlError) -> str:
    """Why a job that could not be asked is not shown."""
    if error.found == "none":
        return (
            "No job answers on this machine, so only the store is shown. A job elsewhere shows by "
            "its new checkpoints; one that restores answers when it runs."
        )
    return f"The job that runs on this store is not shown: {error}"


def _started_ms(view: StoreView, generation: int | None) -> int | None:
    """When the incarnation that runs took the store over."""
    entry = view.slots.entries.get(Slot(generation)) if generation is not None else None
    return entry.created_ms if isinstance(entry, Start) else None


def reads_of(read_ms: int, objects_ms: int, metrics: RequestMetrics | None) -> RestoreReads:
    counted = metrics or RequestMetrics()
    return RestoreReads(
        lists=counted.list.attempts,
        gets=counted.get.attempts,
        bytes=counted.bytes_read,
        read_ms=read_ms,
        objects_ms=objects_ms,
    )
