"""The uploader: one per process, packs the log blocks of all subtasks into segments.

Invariants:
- bytes submitted are held until they are durable: a failed upload puts them back in the queue;
- `persist` answers only when every change it was asked about is durable or sealed for inlining;
- bytes held never exceed the limit by more than what subtasks add before they next `admit`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from tidelog.changelog.block import SealedBlock, seal
from tidelog.changelog.change import ChangeBatch
from tidelog.dstl.cadence import UPLOAD_LEAD_S, Cadence
from tidelog.dstl.chain import ChainCapture, ChainState, LogChain, Piece
from tidelog.dstl.metrics import UploadMetrics
from tidelog.dstl.segment import BlockGroup, SegmentAuthor, pack
from tidelog.effects import Effects, wait_for
from tidelog.errors import TidelogError
from tidelog.ids import Generation, SeqNo
from tidelog.storage import paths
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class UploadConfig:
    """When segments are uploaded; sizes in bytes, times in seconds."""

    segment_bytes: int = 4 << 20
    """Raw bytes that start an upload at once."""
    max_age: float = 0.25
    """The oldest change waits at most this long between checkpoints."""
    linger: float = 0.010
    """How long a checkpoint waits for the blocks of other subtasks."""
    inline_bytes: int = 20_000
    """A tail up to this size goes into the manifest."""
    limit_bytes: int = 128 << 20
    """Raw bytes held before writers are back-pressured."""
    concurrency: int = 4


@dataclass(slots=True, eq=False)
class _Queued:
    chain: LogChain
    piece: Piece
    inlined: bool = False
    """A manifest has it: what is not stored yet decides when the queue is due."""


@dataclass(slots=True, eq=False)
class _Waiter:
    capture: ChainCapture
    answer: asyncio.Future[None]


@dataclass(slots=True)
class Uploader:
    """Uploads log blocks continuously; start `run` as a task, stop it with `close`."""

    store: ObjectStore
    effects: Effects
    ledger: Ledger
    generation: Generation
    process: str
    cadence: Cadence
    config: UploadConfig = field(default_factory=UploadConfig)
    metrics: UploadMetrics = field(default_factory=UploadMetrics)
    _queue: list[_Queued] = field(default_factory=list)
    _waiters: list[_Waiter] = field(default_factory=list)
    _uploads: set[asyncio.Task[None]] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _held_bytes: int = 0
    _queued_bytes: int = 0
    _counter: int = 0
    _retry_at: float = 0.0
    """After a failure no upload starts before this time, unless a checkpoint asks for one."""
    _defect: BaseException | None = None

    def submit(self, chain: LogChain, batch: ChangeBatch) -> None:
        """Take over the changes of one flush."""
        self._submit(chain, Piece.of_batch(batch, self.effects.clock.monotonic()))

    def submit_block(self, chain: LogChain, block: SealedBlock) -> None:
        """Take over a block that is sealed already."""
        self._submit(chain, Piece.of_block(block, self.effects.clock.monotonic()))

    def withdraw(self, chain: LogChain) -> None:
        """Forget what is queued of a chain that nothing will refer to any more."""
        withdrawn = [entry for entry in self._queue if entry.chain is chain]
        if withdrawn:
            self._queue = [entry for entry in self._queue if entry.chain is not chain]
            self._queued_bytes = sum(e.piece.raw_bytes for e in self._queue)
            self._release(withdrawn)

    def _submit(self, chain: LogChain, piece: Piece) -> None:
        chain.append(piece)
        before = self._due_in()
        self._queue.append(_Queued(chain, piece))
        self._held_bytes += piece.raw_bytes
        self._queued_bytes += piece.raw_bytes
        self.metrics.queued_bytes = self._held_bytes
        if before is None or self._queued_bytes >= self.config.segment_bytes:
            self._wake.set()

    @property
    def full(self) -> bool:
        """Writers have to wait until bytes held are durable."""
        return self._held_bytes > self.config.limit_bytes

    async def admit(self) -> None:
        """Wait until the bytes held are below the limit (back-pressure)."""
        if not self.full:
            return
        started = self.effects.clock.monotonic()
        while self.full:
            self._room.clear()
            await self._room.wait()
        self.metrics.backpressured_s += self.effects.clock.monotonic() - started

    async def persist(self, capture: ChainCapture) -> ChainState:
        """Make the captured changes durable.

        Raises the upload's error; the bytes are kept and go with the next attempt.
        """
        if not capture.open_pieces():
            return capture.state()
        waiter = _Waiter(capture, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._wake.set()
        try:
            with self.cadence.moving():
                await waiter.answer
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return capture.state()

    async def run(self) -> None:
        """Upload until cancelled."""
        try:
            while True:
                await self._wait_for_work()
                if self._defect is not None:
                    raise self._defect
                if self._waiters:
                    await self.effects.clock.sleep(self.config.linger)
                await self._seal_queue()
                if self._waiters and self._fits_inline():
                    self._answer(inline=True)
                if not self._worth_uploading():
                    continue
                if len(self._uploads) < self.config.concurrency:
                    self._start_upload()
                else:
                    # Meanwhile what is submitted is sealed: as objects it takes far more memory.
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            for upload in self._uploads:
                upload.cancel()

    async def _wait_for_work(self) -> None:
        """Return when there is a reason to look at the queue."""
        while True:
            self._wake.clear()
            wait = self._due_in()
            if self._defect or self._open_waiters() or (wait is not None and wait <= 0):
                return
            await wait_for(self._wake, self.effects.clock, wait)

    def _due_in(self) -> float | None:
        """Seconds until the queue is uploaded; None when only a checkpoint needs it."""
        queued_at = next((e.piece.queued_at for e in self._queue if not e.inlined), None)
        if queued_at is None or self._queued_bytes <= self.config.inline_bytes:
            # Writers may wait for the room that even this little takes.
            if not self._queue or not self.full:
                return None
            queued_at = self._queue[0].piece.queued_at
        due = queued_at + self.config.max_age
        lead_at = self.cadence.lead_at(UPLOAD_LEAD_S)
        if lead_at is not None and queued_at < lead_at:
            due = min(due, lead_at)
        if self._queued_bytes >= self.config.segment_bytes:
            due = min(due, self._retry_at)
        return max(due, self._retry_at) - self.effects.clock.monotonic()

    def _worth_uploading(self) -> bool:
        left = self._due_in()
        return self._open_waiters() or (left is not None and left <= 0)

    def _open_waiters(self) -> bool:
        """Some waiter needs queued (not just in-flight) pieces to move."""
        queued = {id(entry.piece) for entry in self._queue}
        return any(
            id(piece) in queued
            for waiter in self._waiters
            for piece in waiter.capture.open_pieces()
        )

    async def _seal_queue(self) -> None:
        todo = [entry.piece for entry in self._queue if entry.piece.sealed is None]
        if todo:
            await self.effects.offload.run(_seal_pieces, todo)

    def _fits_inline(self) -> bool:
        """The queue is small, and behind everything durable of the checkpoints that wait."""
        small = sum(_sealed_size(e.piece) for e in self._queue) <= self.config.inline_bytes
        return small and all(waiter.capture.durable_first() for waiter in self._waiters)

    def _answer(self, *, inline: bool) -> None:
        """Answer the waiters whose captured pieces are durable, or sealed and small enough."""
        sealed = (e.piece for e in self._queue if e.piece.sealed is not None)
        queued = {id(piece) for piece in sealed} if inline else set()
        for waiter in list(self._waiters):
            needed = {id(piece) for piece in waiter.capture.open_pieces()}
            if needed <= queued:
                self._waiters.remove(waiter)
                for entry in self._queue:
                    entry.inlined |= id(entry.piece) in needed
                if not waiter.answer.done():
                    waiter.answer.set_result(None)

    def _start_upload(self) -> None:
        # In order up to the first piece that was submitted since the sealing: metadata comes sealed
        # and must not overtake the changes before it, or they and those behind it share a range
        # around it.
        taken = list(takewhile(lambda entry: entry.piece.sealed is not None, self._queue))
        self._queue = self._queue[len(taken) :]
        self._queued_bytes = sum(e.piece.raw_bytes for e in self._queue)
        if taken:
            upload = asyncio.ensure_future(self._upload(taken))
            self._uploads.add(upload)
            upload.add_done_callback(self._ended)

    def _ended(self, upload: asyncio.Task[None]) -> None:
        """A defect of ours must end the job: its bytes are in no queue any more."""
        self._uploads.discard(upload)
        if not upload.cancelled() and upload.exception() is not None:
            self._defect = upload.exception()
        # Only now: who was woken by the upload itself may have found all places still taken.
        self._wake.set()

    async def _upload(self, taken: list[_Queued]) -> None:
        runs = _contiguous_runs(taken)
        self._counter += 1
        name = paths.segment(self.generation, self.process, self._counter)
        author = SegmentAuthor(self.generation, self.process, self._counter)
        self.ledger.begin(name)
        started = self.effects.clock.monotonic()
        try:
            groups = [BlockGroup(r[0].chain.operator, r[0].chain.subtask, _blocks(r)) for r in runs]
            packed = await self.effects.offload.run(pack, author, name, groups)
            await self.store.put(name, packed.data)
        except TidelogError as error:
            self._put_back(taken, error)
            self.ledger.done([name])
            return
        except asyncio.CancelledError:
            self.ledger.done([name])  # nobody will ever refer to it
            raise
        for run, log_range in zip(runs, packed.ranges, strict=True):
            for entry in run:
                entry.piece.durable = log_range
                entry.piece.sealed = None
        for chain in {id(e.chain): e.chain for e in taken}.values():
            chain.settle()
        self.ledger.done([name])
        elapsed = self.effects.clock.monotonic() - started
        self.metrics.uploaded(len(packed.data), len(taken), elapsed)
        self._release(taken)
        self._answer(inline=False)

    def _put_back(self, taken: list[_Queued], error: TidelogError) -> None:
        """Keep the bytes; tell the checkpoints that waited for them."""
        self.metrics.failures += 1
        self._queue = taken + self._queue
        self._queued_bytes = sum(e.piece.raw_bytes for e in self._queue)
        lost = {id(entry.piece) for entry in taken}
        for waiter in list(self._waiters):
            if any(id(piece) in lost for piece in waiter.capture.open_pieces()):
                self._waiters.remove(waiter)
                if not waiter.answer.done():
                    waiter.answer.set_exception(error)
        # So that a failing store is not asked in a tight loop.
        self._retry_at = self.effects.clock.monotonic() + self.config.max_age

    def _release(self, taken: list[_Queued]) -> None:
        self._held_bytes -= sum(entry.piece.raw_bytes for entry in taken)
        self.metrics.queued_bytes = self._held_bytes
        self._room.set()


def _seal_pieces(pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        assert piece.batch is not None
        piece.sealed = seal(piece.batch)
        piece.batch = None


def _sealed_size(piece: Piece) -> int:
    return len(piece.sealed.data) if piece.sealed is not None else piece.raw_bytes


def _blocks(run: Sequence[_Queued]) -> list[SealedBlock]:
    return [entry.piece.sealed for entry in run if entry.piece.sealed is not None]


def _contiguous_runs(taken: list[_Queued]) -> list[list[_Queued]]:
    """Group by subtask, in order, without gaps: each run becomes one range of the segment."""
    ordered = sorted(taken, key=_log_order)
    runs: list[list[_Queued]] = []
    for entry in ordered:
        last = runs[-1][-1] if runs else None
        if last is not None and last.chain is entry.chain and last.piece.end == entry.piece.first:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return runs


def _log_order(entry: _Queued) -> tuple[str, int, SeqNo, SeqNo]:
    # State metadata counts no change: only its end sorts it before the changes it describes.
    return entry.chain.operator, entry.chain.subtask, entry.piece.first, entry.piece.end
