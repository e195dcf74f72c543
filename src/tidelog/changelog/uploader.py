"""The uploader: one per process, packs the log blocks of all subtasks into segments.

Invariants:
- bytes submitted are held until they are durable: a failed upload puts them back in the queue;
- `persist` answers only when every change it was asked about is durable or sealed for inlining;
- bytes held, segments packed of them included, never exceed the limit by more than half of it
  and what subtasks add before they next `admit`;
- writers that are held back do not slow the uploads down: several are on their way even then.
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

import msgspec

from tidelog.changelog.block import SealedBlock
from tidelog.changelog.cadence import UPLOAD_LEAD_S, Cadence
from tidelog.changelog.chain import ChainCapture, ChainState, Piece, SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import BlockGroup, SegmentAuthor, pack
from tidelog.changelog.upload_config import UploadConfig, UploadMetrics
from tidelog.effects import Effects, wait_for
from tidelog.errors import TidelogError
from tidelog.events import Event
from tidelog.ids import Generation
from tidelog.storage import object_names
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore

logger = logging.getLogger(__name__)

LARGEST_SEGMENT: Final = 32 << 20
"""Raw bytes of a segment at most, unless a single block has more."""
SHORT_WORK_BYTES: Final = 1 << 20
"""Blocks up to this size are sealed and packed on the event loop while a checkpoint waits for them:
a thread would wait longer for the interpreter's lock than the work takes.
"""
WAITS_LOGGED_EVERY_S: Final = 10.0
"""Under steady back-pressure writers wait many times a second."""


class _Queued(msgspec.Struct, eq=False):
    chain: SubtaskLogChain
    piece: Piece
    inlined: bool = False
    """A manifest holds the piece, so it alone is no reason for an upload."""


class _Waiter(msgspec.Struct, eq=False):
    capture: ChainCapture
    answer: asyncio.Future[None]


@dataclass(slots=True)
class UploadRoom:
    """The bytes that the uploaders of a process may hold together."""

    limit_bytes: int
    held_bytes: int = 0
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when bytes have become durable."""

    @property
    def full(self) -> bool:
        """Writers have to wait."""
        return self.held_bytes > self.limit_bytes


@dataclass(slots=True)
class Uploader:
    """Uploads log blocks continuously; `run` as a task does so until it is cancelled."""

    store: ObjectStore
    effects: Effects
    ledger: Ledger
    generation: Generation
    process: str
    cadence: Cadence
    config: UploadConfig = field(default_factory=UploadConfig)
    metrics: UploadMetrics = field(default_factory=UploadMetrics)
    shared_room: UploadRoom | None = None
    """That of several uploaders; None: this one has the limit of its `config` to itself."""
    _room: UploadRoom = field(init=False)
    _over: bool = False
    _queue: list[_Queued] = field(default_factory=list)
    _waiters: list[_Waiter] = field(default_factory=list)
    _uploads: set[asyncio.Task[None]] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _held_bytes: int = 0
    _packed_bytes: int = 0
    """Bytes of the segments that are being uploaded: copies of pieces that are held, too."""
    _queued_bytes: int = 0
    _counter: int = 0
    _retry_at: float = 0.0
    """After a failure no upload starts before this time, unless a checkpoint asks for one."""
    _waits_logged_at: float = -math.inf
    _defect: BaseException | None = None

    def __post_init__(self) -> None:
        self._room = self.shared_room or UploadRoom(self.config.limit_bytes)

    def submit(self, chain: SubtaskLogChain, batch: ChangeBatch) -> None:
        """Take over the changes of one flush."""
        piece = Piece.of_batch(batch, self.effects.clock.monotonic(), self.config.compression_level)
        if self.cadence.under_way and piece.raw_bytes <= SHORT_WORK_BYTES:
            piece.seal()
        self._submit(chain, piece)

    def submit_block(self, chain: SubtaskLogChain, block: SealedBlock) -> None:
        """Take over a block that is sealed already."""
        self._submit(chain, Piece.of_block(block, self.effects.clock.monotonic()))

    def withdraw(self, chain: SubtaskLogChain) -> None:
        """Forget what is queued of a chain that nothing will refer to any more."""
        withdrawn = [entry for entry in self._queue if entry.chain is chain]
        if withdrawn:
            self._queue = [entry for entry in self._queue if entry.chain is not chain]
            self._queued_bytes = _raw_bytes(self._queue)
            self._release(withdrawn)

    def leave(self) -> None:
        """Nothing is uploaded any more: others that share the room have it to themselves."""
        self._over = True
        self._count()
        self._room.freed.set()

    def _submit(self, chain: SubtaskLogChain, piece: Piece) -> None:
        chain.append(piece)
        before = self._due_in()
        self._queue.append(_Queued(chain, piece))
        self._held_bytes += piece.raw_bytes
        self._queued_bytes += piece.raw_bytes
        self._count()
        if before is None or self._queued_bytes >= self.config.segment_bytes:
            self._wake.set()

    @property
    def full(self) -> bool:
        """Writers have to wait until bytes held are durable."""
        return self._room.full

    async def admit(self) -> None:
        """Wait until the bytes held are below the limit (back-pressure)."""
        if not self.full:
            return
        started = self.effects.clock.monotonic()
        if started >= self._waits_logged_at + WAITS_LOGGED_EVERY_S:
            self._waits_logged_at = started
            held_bytes, limit = self._room.held_bytes, self._room.limit_bytes
            Event.WRITERS_WAIT.log(logger, held_bytes=held_bytes, limit_bytes=limit)
        while self.full:
            self._room.freed.clear()
            await self._room.freed.wait()
        self.metrics.backpressured_s += self.effects.clock.monotonic() - started

    async def persist(self, capture: ChainCapture) -> ChainState:
        """Make the captured changes durable; raises the upload's error, and keeps the bytes."""
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
                if self._waiters and not self.cadence.all_captured:
                    await self.effects.clock.sleep(self.config.linger)
                await self._seal_queue()
                if self._waiters and self._fits_inline():
                    self._answer(inline=True)
                if not self._worth_uploading():
                    continue
                if self._may_start_another():
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
        due_in_s = self._due_in()
        return self._open_waiters() or (due_in_s is not None and due_in_s <= 0)

    def _open_waiters(self) -> bool:
        """Some waiter needs queued (not just in-flight) pieces to move."""
        if not self._waiters:
            return False
        queued = {entry.piece for entry in self._queue}
        return any(queued.intersection(waiter.capture.open_pieces()) for waiter in self._waiters)

    async def _seal_queue(self) -> None:
        todo = [entry.piece for entry in self._queue if entry.piece.sealed is None]
        if self._waiters and sum(piece.raw_bytes for piece in todo) <= SHORT_WORK_BYTES:
            _seal(todo)
        elif todo:
            await self.effects.offload.run(_seal, todo)

    def _fits_inline(self) -> bool:
        """The queue is small, and no waiting checkpoint has an open piece before a durable one."""
        small = _sealed_bytes(self._queue) <= self.config.inline_bytes
        return small and all(waiter.capture.durable_first() for waiter in self._waiters)

    def _answer(self, *, inline: bool) -> None:
        """Answer the waiters whose captured pieces are durable, or sealed and small enough."""
        sealed = {entry.piece for entry in self._queue if entry.piece.sealed is not None}
        for waiter in list(self._waiters):
            needed = set(waiter.capture.open_pieces())
            if needed <= (sealed if inline else set()):
                self._waiters.remove(waiter)
                for entry in self._queue:
                    entry.inlined |= entry.piece in needed
                if not waiter.answer.done():
                    waiter.answer.set_result(None)

    def _may_start_another(self) -> bool:
        """Segments being uploaded are copies of pieces: they take at most half of the limit."""
        if not self._uploads:
            return True
        size = _sealed_bytes(self._next_segment())
        fits = self._packed_bytes + size <= self.config.limit_bytes // 2
        return fits and len(self._uploads) < self.config.concurrency

    def _start_upload(self) -> None:
        # In order up to the first open piece: state metadata is submitted sealed and must not
        # overtake the changes before it, or one range would span the metadata.
        entries = self._next_segment()
        self._queue = self._queue[len(entries) :]
        self._queued_bytes = _raw_bytes(self._queue)
        if entries:
            packed = _sealed_bytes(entries)
            self._packed_bytes += packed
            self._count()
            upload = asyncio.ensure_future(self._upload(entries))
            self._uploads.add(upload)
            upload.add_done_callback(lambda upload: self._ended(upload, packed))

    def _next_segment(self) -> list[_Queued]:
        """The sealed pieces of the next segment, bounded because packing copies them."""
        entries: list[_Queued] = []
        room = min(LARGEST_SEGMENT, max(self.config.segment_bytes, self.config.limit_bytes // 8))
        for entry in takewhile(lambda entry: entry.piece.sealed is not None, self._queue):
            room -= entry.piece.raw_bytes
            if entries and room < 0:
                break
            entries.append(entry)
        return entries

    def _ended(self, upload: asyncio.Task[None], packed: int) -> None:
        """Account for an upload that ended; an unexpected exception ends `run`, and the job."""
        self._uploads.discard(upload)
        self._packed_bytes -= packed
        self._count()
        self._room.freed.set()
        if not upload.cancelled() and upload.exception() is not None:
            self._defect = upload.exception()
        # Again, because `run`, woken by the upload itself, may have found it still counted.
        self._wake.set()

    async def _upload(self, entries: list[_Queued]) -> None:
        runs = _contiguous_runs(entries)
        self._counter += 1
        name = object_names.segment(self.generation, self.process, self._counter)
        author = SegmentAuthor(self.generation, self.process, self._counter)
        self.ledger.begin(name)
        started = self.effects.clock.monotonic()
        try:
            groups = list(map(_group, runs))
            if _sealed_bytes(entries) <= SHORT_WORK_BYTES:
                packed = pack(author, name, groups)
            else:
                packed = await self.effects.offload.run(pack, author, name, groups)
            await self.store.put(name, packed.data)
        except TidelogError as error:
            size = _raw_bytes(entries)
            Event.SEGMENT_NOT_UPLOADED.log(logger, segment=name, bytes=size, error=error)
            self._put_back(entries, error)
            self.ledger.done([name])
            return
        except asyncio.CancelledError:
            self.ledger.done([name])  # nobody will ever refer to it
            raise
        for run, log_range in zip(runs, packed.ranges, strict=True):
            for entry in run:
                entry.piece.stored(log_range)
        for chain in dict.fromkeys(entry.chain for entry in entries):
            chain.settle()
        self.ledger.done([name])
        elapsed = self.effects.clock.monotonic() - started
        self.metrics.uploaded(len(packed.data), len(entries), elapsed)
        self._release(entries)
        self._answer(inline=False)

    def _put_back(self, entries: list[_Queued], error: TidelogError) -> None:
        """Queue the pieces of a failed upload again; fail the checkpoints that wait for them."""
        self.metrics.failures += 1
        self._queue = entries + self._queue
        self._queued_bytes = _raw_bytes(self._queue)
        lost = {entry.piece for entry in entries}
        for waiter in list(self._waiters):
            if lost.intersection(waiter.capture.open_pieces()):
                self._waiters.remove(waiter)
                if not waiter.answer.done():
                    waiter.answer.set_exception(error)
        # So that a failing store is not asked in a tight loop.
        self._retry_at = self.effects.clock.monotonic() + self.config.max_age

    def _release(self, entries: list[_Queued]) -> None:
        self._held_bytes -= _raw_bytes(entries)
        self._count()
        self._room.freed.set()

    def _count(self) -> None:
        queued_bytes = 0 if self._over else self._held_bytes + self._packed_bytes
        self._room.held_bytes += queued_bytes - self.metrics.queued_bytes
        self.metrics.queued_bytes = queued_bytes


def _seal(pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        piece.seal()


def _raw_bytes(entries: Iterable[_Queued]) -> int:
    return sum(entry.piece.raw_bytes for entry in entries)


def _sealed_bytes(entries: Iterable[_Queued]) -> int:
    return sum(entry.piece.size for entry in entries)


def _group(run: Sequence[_Queued]) -> BlockGroup:
    blocks = [entry.piece.sealed for entry in run if entry.piece.sealed is not None]
    return BlockGroup(run[0].chain.operator, run[0].chain.subtask, blocks)


def _contiguous_runs(entries: list[_Queued]) -> list[list[_Queued]]:
    """Runs of consecutive pieces of one chain: each becomes one range of the segment."""
    chains: dict[SubtaskLogChain, list[_Queued]] = {}
    for entry in entries:
        chains.setdefault(entry.chain, []).append(entry)
    runs: list[list[_Queued]] = []
    for chain in sorted(chains, key=lambda chain: (chain.operator, chain.subtask)):
        last = None
        for entry in sorted(chains[chain], key=lambda entry: entry.piece.number):
            # By numbers, not by changes: state metadata counts no change, and when another segment
            # has it already, a range from before it to after it would be out of the log's order.
            if last is not None and entry.piece.number == last + 1:
                runs[-1].append(entry)
            else:
                runs.append([entry])
            last = entry.piece.number
    return runs
