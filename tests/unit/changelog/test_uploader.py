"""The uploader: few objects, no lost bytes, bounded memory; all in virtual time."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.faults import Failure, SteerableStore
from tidelog import StorageError, StoreUnreachableError, UploadConfig
from tidelog.changelog.block import open_block, seal_metadata
from tidelog.changelog.cadence import UPLOAD_LEAD_S, Cadence
from tidelog.changelog.chain import ChainState, SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import read_footer
from tidelog.changelog.uploader import SHORT_WORK_BYTES, Uploader
from tidelog.effects import InlineOffload
from tidelog.ids import Generation, SeqNo
from tidelog.storage import object_names
from tidelog.storage.ledger import Ledger
from tidelog.storage.memory import MemoryStore


class Rig:
    """An uploader over a steerable store, with a clock that a test advances."""

    def __init__(self, **config: float) -> None:
        self.clock = VirtualClock(auto=False)
        self.memory = MemoryStore("memory://uploads")
        self.store = SteerableStore(self.memory)
        self.ledger = Ledger()
        effects = in_virtual_time(1, self.clock)
        settings = UploadConfig(**{"inline_bytes": 0, **config})  # type: ignore[arg-type]
        self.cadence = Cadence(self.clock)
        self.uploader = Uploader(
            self.store, effects, self.ledger, Generation(0), "process", self.cadence, settings
        )

    def write(self, chain: SubtaskLogChain, size: int = 1) -> None:
        """One change with an incompressible value of `size` bytes."""
        start = SeqNo(chain.end or 0)
        key = start.to_bytes(8, "big")
        self.uploader.submit(chain, ChangeBatch(start, [key], [Random(start).randbytes(size)]))

    async def write_when_admitted(self, chain: SubtaskLogChain, times: int) -> None:
        for _ in range(times):
            self.write(chain, 500)
            await asyncio.sleep(0)
            await self.uploader.admit()

    def persist(self, chain: SubtaskLogChain) -> "asyncio.Future[ChainState]":
        return asyncio.ensure_future(self.uploader.persist(chain.capture()))

    async def begin_upload(self, chain: SubtaskLogChain) -> None:
        """Write as much as does not wait for a checkpoint."""
        self.write(chain, 500)
        await self.clock.advance(0.001)

    async def persisted(self, chain: SubtaskLogChain, seconds: float = 0.02) -> "Changes":
        """What a checkpoint stores of the log within this time."""
        answer = self.persist(chain)
        await self.clock.advance(seconds)
        return changes(answer.result())

    @property
    def segments(self) -> list[str]:
        return [name for name in self.memory._objects if name.startswith(object_names.SEGMENTS)]

    @property
    def attempts(self) -> int:
        return len([c for c in self.store.calls if c[0] == "put"])


@asynccontextmanager
async def running(rig: Rig | None = None, **config: float) -> AsyncIterator[Rig]:
    """An uploader that runs meanwhile."""
    rig = rig or Rig(**config)
    task = asyncio.ensure_future(rig.uploader.run())
    try:
        yield rig
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def chain_of(subtask: int = 0) -> SubtaskLogChain:
    return SubtaskLogChain("operator", subtask)


def upload(number: int) -> str:
    """The name of the object of an upload, counted from 1."""
    return object_names.segment(Generation(0), "process", number)


Changes = list[tuple[int, int]]
"""(first, end) of ranges and inline blocks, in order."""


def changes(state: ChainState) -> Changes:
    """What a checkpoint stores."""
    inline = [open_block(data) for data in state.inline]
    return [(r.first, r.end) for r in state.ranges] + [(b.first, b.end) for b in inline]


async def test_the_linger_packs_the_blocks_of_all_subtasks_into_one_object() -> None:
    async with running(linger=0.010) as rig:
        chains = [chain_of(n) for n in range(8)]
        answers = []
        for chain in chains:
            rig.write(chain, 100)
            answers.append(rig.persist(chain))
            await rig.clock.advance(0.001)
        await rig.clock.advance(0.010)
        states = [answer.result() for answer in answers]
        assert len(rig.segments) == 1
        segment = read_footer(rig.memory._objects[rig.segments[0]], rig.segments[0])
        assert {entry.subtask for entry in segment.entries} == set(range(8))
        assert all(changes(state) == [(0, 1)] for state in states)


async def test_nothing_lingers_once_all_subtasks_have_taken_their_parts() -> None:
    async with running(linger=10.0) as rig:
        rig.cadence.triggered(2)
        answers = []
        for number in range(2):
            chain = chain_of(number)
            rig.write(chain, 100)
            rig.cadence.captured()
            answers.append(rig.persist(chain))
        await rig.clock.advance(0.0)
        assert [changes(answer.result()) for answer in answers] == [[(0, 1)], [(0, 1)]]
        assert len(rig.segments) == 1


async def test_a_small_tail_lives_in_the_manifest_and_costs_no_upload() -> None:
    async with running(inline_bytes=1000) as rig:
        chain = chain_of()
        for expected in ([(0, 1)], [(0, 1), (1, 2)]):
            rig.write(chain, 50)
            assert await rig.persisted(chain) == expected
        assert rig.segments == []
        rig.write(chain, 2000)
        assert await rig.persisted(chain) == [(0, 3)]
        assert len(rig.segments) == 1


async def test_what_a_manifest_holds_does_not_hurry_the_changes_behind_it() -> None:
    async with running(inline_bytes=1000, max_age=0.25) as rig:
        chain = chain_of()
        rig.write(chain, 900)
        assert await rig.persisted(chain, 5.0) == [(0, 1)]
        rig.write(chain, 900)
        await rig.clock.advance(0.24)
        assert rig.segments == []
        await rig.clock.advance(0.02)
        assert len(rig.segments) == 1
        assert changes(chain.capture().state()) == [(0, 2)]


async def test_changes_travel_between_checkpoints_when_they_are_old_or_many() -> None:
    async with running(inline_bytes=100, max_age=0.25, segment_bytes=5000) as rig:
        chain = chain_of()
        rig.write(chain, 50)
        await rig.clock.advance(10)
        assert rig.attempts == 0, "a tail fit for the manifest waits for it"
        rig.write(chain, 200)
        await rig.clock.advance(0.001)
        assert rig.attempts == 1, "its oldest change is older than the maximum already"
        rig.write(chain, 200)
        await rig.clock.advance(0.24)
        assert rig.attempts == 1
        await rig.clock.advance(0.02)
        assert rig.attempts == 2
        rig.write(chain, 6000)
        await rig.clock.advance(0.0)
        assert rig.attempts == 3, "a full segment does not wait"


@pytest.mark.parametrize("after", [False, True])
async def test_a_failed_upload_keeps_its_bytes_for_the_next_checkpoint(after: bool) -> None:
    async with running() as rig:
        chain = chain_of()
        rig.write(chain, 100)
        rig.store.fail(Failure("put", object_names.SEGMENTS, after=after))
        failed = rig.persist(chain)
        await rig.clock.advance(0.02)
        assert isinstance(failed.exception(), StoreUnreachableError)
        rig.write(chain, 100)
        answer = rig.persist(chain)
        await rig.clock.advance(0.02)
        assert changes(answer.result()) == [(0, 2)]
        names = {r.segment for r in answer.result().ranges}
        assert names == chain.objects() == {sorted(rig.segments)[-1]}
        assert rig.ledger.busy == frozenset()
        assert set(rig.segments) <= rig.ledger.names, "what nobody refers to can be collected"


async def test_a_store_that_fails_at_once_is_not_asked_in_a_tight_loop() -> None:
    async with running(segment_bytes=1000, max_age=0.25) as rig:
        rig.store.fail(*(Failure("put", nth=n) for n in range(1, 1000)))
        rig.write(chain_of(), 5000)
        await rig.clock.advance(1.0)
        assert 2 <= rig.attempts <= 5


async def test_a_checkpoint_does_not_wait_for_the_pause_behind_a_failure() -> None:
    async with running(max_age=100.0, segment_bytes=1000) as rig:
        chain = chain_of()
        rig.store.fail(Failure("put"))
        rig.write(chain, 5000)
        await rig.clock.advance(1.0)
        assert await rig.persisted(chain) == [(0, 1)]


async def test_uploads_that_finish_out_of_order_leave_the_log_in_order() -> None:
    async with running(segment_bytes=100) as rig:
        chain = chain_of()
        rig.store.hold(upload(1))
        await rig.begin_upload(chain)
        await rig.begin_upload(chain)
        assert len(rig.segments) == 1, "the second is durable, the first is not"
        answer = rig.persist(chain)
        await rig.clock.advance(1.0)
        assert not answer.done()
        rig.store.release()
        await rig.clock.advance(0.001)
        assert changes(answer.result()) == [(0, 1), (1, 2)]
        assert [r.segment for r in answer.result().ranges] == sorted(rig.segments)


async def test_changes_before_durable_ones_are_uploaded_never_inlined() -> None:
    """The manifest's inline blocks lie behind its ranges: a restore goes on from their end."""
    async with running(segment_bytes=100, inline_bytes=90) as rig:
        chain = chain_of()
        # Many zeros: big enough to start an upload, small enough to be inlined once sealed.
        rig.uploader.submit(chain, ChangeBatch(SeqNo(0), [b"12345678"], [bytes(500)]))
        rig.store.hold(upload(1))
        rig.store.fail(Failure("put", upload(1)))
        await rig.clock.advance(0.001)
        await rig.begin_upload(chain)
        rig.store.release()
        await rig.clock.advance(0.001)
        assert len(rig.segments) == 1, "the later changes are durable, the earlier are not"
        answer = rig.persist(chain)
        await rig.clock.advance(0.05)
        assert answer.result().inline == ()
        assert changes(answer.result()) == [(0, 1), (1, 2)]


async def test_uploads_that_fail_out_of_order_go_back_in_order() -> None:
    async with running(segment_bytes=100, max_age=1000.0) as rig:
        chain = chain_of()
        names = [upload(1), upload(2)]
        for name in names:
            rig.store.hold(name)
        rig.store.fail(*(Failure("put", name) for name in names))
        rig.write(chain, 500)
        # Metadata counts no change: only its place in the log tells where it belongs.
        rig.uploader.submit_block(chain, seal_metadata(b"{}", SeqNo(1)))
        await rig.clock.advance(0.001)
        await rig.begin_upload(chain)
        for name in names:
            rig.store.held.pop(name).set()
            await rig.clock.advance(0.001)
        assert rig.segments == []
        assert await rig.persisted(chain) == [(0, 2)]


async def test_a_range_never_reaches_over_metadata_that_another_segment_has() -> None:
    """A materialization covers the changes before the metadata; they are on their way all the same.

    Packed with the changes behind it, they would begin the log below where the metadata begins it.
    """
    async with running(segment_bytes=100) as rig:
        chain = chain_of()
        rig.store.hold(upload(1))
        rig.store.fail(Failure("put", upload(1)))
        await rig.begin_upload(chain)
        # Large enough for an upload of its own, which is faster than the one before.
        rig.uploader.submit_block(chain, seal_metadata(Random(0).randbytes(500), SeqNo(1)))
        await rig.clock.advance(0.001)
        assert len(rig.segments) == 1
        chain.truncate(SeqNo(1))
        rig.store.release()
        await rig.clock.advance(0.001)
        rig.write(chain, 500)
        assert await rig.persisted(chain, 0.5) == [(1, 1), (1, 2)]


async def test_a_stalled_store_holds_writers_back_until_it_moves() -> None:
    async with running(limit_bytes=10_000, segment_bytes=1000, concurrency=2) as rig:
        chain = chain_of()
        rig.store.hold(object_names.SEGMENTS)
        writing = asyncio.ensure_future(rig.write_when_admitted(chain, 100))
        await rig.clock.advance(10.0)
        assert rig.uploader.metrics.queued_bytes <= 10_000 + 600
        stuck = chain.end
        await rig.clock.advance(100.0)
        assert chain.end == stuck and stuck is not None and stuck < 100
        assert rig.store.waiting == 2, "no more uploads in flight than allowed"
        rig.store.release()
        for _ in range(50):
            await rig.clock.advance(0.2)
        assert writing.done() and chain.end == 100
        assert rig.uploader.metrics.backpressured_s >= 100
        assert rig.uploader.metrics.queued_bytes == 0


async def test_uploads_go_on_side_by_side_while_writers_are_held_back() -> None:
    async with running(limit_bytes=20_000, segment_bytes=1000, concurrency=4) as rig:
        chain = chain_of()
        segments = [upload(n) for n in range(1, 40)]
        for name in segments:
            rig.store.hold(name)

        writing = asyncio.ensure_future(rig.write_when_admitted(chain, 1000))
        for name in segments[:20]:
            while not rig.uploader.full:
                await rig.clock.advance(0.01)
            assert rig.store.waiting == 4
            rig.store.held.pop(name).set()
            await rig.clock.advance(0.01)
        writing.cancel()


async def test_a_cancelled_waiter_hurts_nobody() -> None:
    async with running() as rig:
        chain = chain_of()
        rig.write(chain, 100)
        rig.store.hold(object_names.SEGMENTS)
        given_up, other = rig.persist(chain), rig.persist(chain)
        await rig.clock.advance(0.02)
        given_up.cancel()
        await rig.clock.advance(0.02)
        rig.store.release()
        await rig.clock.advance(0.02)
        assert changes(other.result()) == [(0, 1)]
        assert given_up.cancelled()
        assert rig.cadence.transfers == 0


async def test_only_the_checkpoints_whose_bytes_failed_hear_of_it() -> None:
    async with running(segment_bytes=100) as rig:
        failing, fine = chain_of(0), chain_of(1)
        rig.store.hold(upload(1))
        rig.store.fail(Failure("put", upload(1)))
        await rig.begin_upload(failing)
        await rig.begin_upload(fine)
        answers = [rig.persist(failing), rig.persist(fine)]
        await rig.clock.advance(0.02)
        rig.store.release()
        await rig.clock.advance(0.001)
        assert isinstance(answers[0].exception(), StorageError)
        assert changes(answers[1].result()) == [(0, 1)]


async def test_a_defect_within_an_upload_ends_the_uploader() -> None:
    rig = Rig()

    async def broken(name: str, data: bytes) -> None:
        raise ZeroDivisionError(name)

    rig.store.put = broken  # type: ignore[method-assign]
    chain = chain_of()
    rig.write(chain, 100)
    running = asyncio.ensure_future(rig.uploader.run())
    waiting = rig.persist(chain)
    await rig.clock.advance(1.0)
    waiting.cancel()
    assert isinstance(running.exception(), ZeroDivisionError)


class SubmitsWhileSealing(InlineOffload):
    """The first time something is sealed, the task goes on and flushes more."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on: Callable[[], None] | None = go_on

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if self._go_on is not None:
            go_on, self._go_on = self._go_on, None
            go_on()
        return result


async def test_metadata_submitted_during_a_sealing_does_not_overtake_changes_before_it() -> None:
    rig = Rig()
    chain = chain_of()

    def go_on() -> None:
        rig.write(chain)
        rig.uploader.submit_block(chain, seal_metadata(b"states", SeqNo(2)))
        rig.write(chain)

    rig.uploader.effects = dataclasses.replace(
        rig.uploader.effects, offload=SubmitsWhileSealing(go_on)
    )

    async with running(rig):
        rig.write(chain, SHORT_WORK_BYTES + 1)  # more goes to a thread
        first = rig.persist(chain)
        await rig.clock.advance(0.02)
        assert changes(first.result()) == [(0, 1)]
        second = rig.persist(chain)
        await rig.clock.advance(0.02)
        assert changes(second.result()) == [(0, 1), (1, 3)]


async def test_what_was_flushed_before_a_checkpoint_is_uploaded_ahead_of_it() -> None:
    async with running(max_age=60.0) as rig:
        rig.cadence.expect(1.0)
        rig.write(chain_of(), 100)
        await rig.clock.advance(1.0 - UPLOAD_LEAD_S - 0.01)
        assert rig.segments == []
        await rig.clock.advance(0.02)
        assert len(rig.segments) == 1
