"""The log goes first; all in virtual time."""

import asyncio

import pytest

from tests.support.clock import VirtualClock
from tidelog.changelog.cadence import Cadence


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(auto=False)


@pytest.fixture
def cadence(clock: VirtualClock) -> Cadence:
    return Cadence(clock)


def waiting(cadence: Cadence, seconds: float, patience: float = 60.0) -> "asyncio.Future[None]":
    return asyncio.ensure_future(cadence.room_for(seconds, patience))


async def test_no_transfer_starts_while_a_checkpoint_moves_bytes(
    clock: VirtualClock, cadence: Cadence
) -> None:
    cadence.expect(100.0)
    with cadence.moving(), cadence.moving():
        transfer = waiting(cadence, 0.01)
        await clock.advance(1.0)
        assert not transfer.done()
    await clock.advance(0.0)
    assert transfer.done()


async def test_a_transfer_that_would_reach_into_the_next_checkpoint_waits_for_the_one_after(
    clock: VirtualClock, cadence: Cadence
) -> None:
    cadence.expect(1.0)
    await clock.advance(0.6)
    fits, reaches_over = waiting(cadence, 0.3), waiting(cadence, 0.5)
    await clock.advance(0.0)
    assert fits.done() and not reaches_over.done()
    cadence.triggered(1)
    await clock.advance(0.5)
    assert not reaches_over.done()
    cadence.expect(2.0)
    await clock.advance(0.0)
    assert reaches_over.done()


async def test_patience_ends_so_tables_make_progress_under_any_cadence(
    clock: VirtualClock, cadence: Cadence
) -> None:
    cadence.triggered(1)
    with cadence.moving():
        transfer = waiting(cadence, 0.5, patience=2.0)
        await clock.advance(1.9)
        assert not transfer.done()
        await clock.advance(0.2)
        assert transfer.done()
