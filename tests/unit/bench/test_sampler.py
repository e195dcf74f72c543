"""Samples hold totals, so rates lose nothing; a sampler sees what its process and store do."""

import asyncio
from pathlib import Path

import pytest

from tidelog.effects import SystemClock
from tidelog.storage.memory import MemoryStore
from tidelog_bench.embedded.sampler import Sample, Sampler, mean, per_second
from tidelog_bench.store.latency import LatencyProfile
from tidelog_bench.store.modelled import CHUNK, ModelledStore


def totals(*values: tuple[float, float]) -> list[Sample]:
    """Samples at some moments with these CPU totals."""
    return [Sample(at, cpu_s, 0, 0, 0, 0) for at, cpu_s in values]


def cpu(sample: Sample) -> float:
    return sample.cpu_s


def test_rates_lie_in_the_middle_of_their_steps_and_add_up_to_the_total() -> None:
    samples = totals((10.0, 5.0), (11.0, 6.0), (13.0, 6.5), (14.0, 9.5))
    assert per_second(samples, cpu) == [(0.5, 1.0), (2.0, 0.25), (3.5, 3.0)]
    assert mean(samples, cpu) == 4.5 / 4


def test_steps_are_as_long_as_asked_for_and_a_rest_is_left_out() -> None:
    samples = totals(*((at / 10, at * at / 100) for at in range(8)))
    points = per_second(samples, cpu, step_s=0.3)
    assert [at for at, _ in points] == pytest.approx([0.15, 0.45])
    assert [rate for _, rate in points] == pytest.approx([0.09 / 0.3, 0.27 / 0.3])


def test_a_sampler_sees_the_bytes_on_the_wire_in_the_disk_and_the_requests(tmp_path: Path) -> None:
    store = ModelledStore(MemoryStore(), SystemClock(), LatencyProfile(1.0, 20.0))
    sampler = Sampler(store, every_s=0.01)

    async def body() -> None:
        sampler.start()
        await store.put("a", bytes(8 * CHUNK))
        await store.get("a", 0, CHUNK)
        (tmp_path / "file").write_bytes(bytes(100_000))

    asyncio.run(body())
    sampler.stop()
    first, last = sampler.samples[0], sampler.samples[-1]
    assert last.wire_bytes - first.wire_bytes == 9 * CHUNK
    assert last.requests - first.requests == 2
    assert last.written_bytes - first.written_bytes >= 100_000
    assert last.cpu_s >= first.cpu_s > 0
    # A transfer is seen while it is under way.
    assert len({sample.wire_bytes for sample in sampler.samples}) > 3
    assert [s.at for s in sampler.samples] == sorted(s.at for s in sampler.samples)
    taken = len(sampler.samples)
    sampler.stop()
    assert len(sampler.samples) == taken
