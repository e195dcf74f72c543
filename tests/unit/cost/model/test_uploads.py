"""Segments leave when the uploader lets them, and nothing is lost on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.changelog.upload_config import UploadConfig
from tidelog.cost.model.settings import Link, Settings
from tidelog.cost.model.upload_queue import Burst, follow
from tidelog.cost.model.uploads import log_cycle
from tidelog.cost.model.workload import Workload

CONFIG = UploadConfig()
INSTANT = Link(bytes_per_s=1e12, latency_s=0.0)


def burst(at: float, size: float, *, sources: bool = False) -> Burst:
    return Burst(at, size, size, size, sources=sources)


def test_a_large_tail_is_a_segment_of_its_own() -> None:
    found = follow([burst(0.9, 300_000), burst(1.0, 30_000, sources=True)], CONFIG, 1.0, INSTANT)
    assert (found.segments, found.inline, found.tail) == (2, 0, 30_000)
    assert found.shared / found.bytes == pytest.approx(30 / 330)


def test_a_small_tail_stays_in_the_manifest_and_travels_with_the_next_segment() -> None:
    found = follow([burst(0.9, 300_000), burst(1.0, 5_000, sources=True)], CONFIG, 1.0, INSTANT)
    assert (found.segments, found.inline, found.tail) == (1, 5_000, 0)
    assert found.shared == found.bytes == 305_000


def test_flushes_leave_by_their_age_between_checkpoints() -> None:
    found = follow([burst(at, 100_000) for at in (1.0, 2.0, 3.0, 4.0)], CONFIG, 4.0, INSTANT)
    assert found.segments == 4


def test_flushes_that_follow_each_other_closely_share_a_segment() -> None:
    found = follow([burst(at, 100_000) for at in (1.0, 1.1, 1.2, 4.0)], CONFIG, 4.0, INSTANT)
    assert found.segments == 2


def test_a_segment_that_is_full_leaves_at_once() -> None:
    many = Burst(1.0, 10 << 20, 10 << 20, 1 << 20)
    assert follow([many], CONFIG, 1.0, INSTANT).segments == 3  # of 4, 4 and 2 blocks


def test_tails_gather_until_they_are_worth_a_segment() -> None:
    found = follow([burst(1.0, 6_000)], CONFIG, 1.0, INSTANT)
    assert found.segments == pytest.approx(1 / 4)
    assert found.inline == pytest.approx((6_000 + 12_000 + 18_000) / 4)
    tiny = follow([burst(1.0, 10)], CONFIG, 1.0, INSTANT)
    assert tiny.segments == pytest.approx(10 / 20_000, rel=0.01)
    assert tiny.inline == pytest.approx(10_000, rel=0.01)


def test_a_tail_behind_a_segment_on_its_way_is_uploaded_too_and_waited_for() -> None:
    bursts = [burst(0.9, 300_000), burst(1.0, 5_000)]
    near = follow(bursts, CONFIG, 1.0, Link(bytes_per_s=50e6, latency_s=0.03))
    assert (near.segments, near.inline) == (1, 5_000)
    assert near.waited_s == pytest.approx(CONFIG.linger)
    # It leaves 0.08 s ahead of the barrier, and is not stored when the checkpoint asks for it.
    far = follow(bursts, CONFIG, 1.0, Link(bytes_per_s=50e6, latency_s=0.1))
    assert (far.segments, far.inline, far.tail) == (2, 0, 5_000)
    assert far.waited_s == pytest.approx(CONFIG.linger + 0.1 + 5_000 / 50e6)


@given(
    writes_per_s=st.floats(0.1, 1e6),
    keys=st.integers(1, 10**8),
    skew=st.floats(0, 1.5),
    subtasks=st.integers(1, 64),
    processes=st.integers(1, 8),
    cycle_s=st.floats(0.05, 600),
)
def test_every_change_is_uploaded_once(
    writes_per_s: float, keys: int, skew: float, subtasks: int, processes: int, cycle_s: float
) -> None:
    workload = Workload(writes_per_s, keys, skew=skew, compression=0.5)
    settings = Settings(parallelism=subtasks * processes, processes=processes)
    log = log_cycle(workload, settings, cycle_s)
    payload = log.changes * workload.change_bytes
    assert payload <= log.segment_bytes
    assert log.changes <= log.updates * 1.01 + 1
    assert log.segments > 0
    assert 0 <= log.shared <= 1.000_001
    assert log.inline_bytes <= CONFIG.inline_bytes
