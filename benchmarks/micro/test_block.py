"""Blocks: what sealing a flush costs, and reading it back."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.inputs import FLUSHED, flush
from tidelog.changelog.block import SealedBlock, open_block, record_batch, seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.replay import LastWriterWins
from tidelog.ids import SeqNo


@pytest.fixture(params=[16, 200], scope="module")
def batch(request: pytest.FixtureRequest) -> ChangeBatch:
    """16,384 changes of words of 16 or 200 bytes."""
    return flush(length=request.param)


@pytest.fixture(scope="module")
def sealed(batch: ChangeBatch) -> SealedBlock:
    return seal(batch)


def test_encode(benchmark: BenchmarkFixture, batch: ChangeBatch) -> None:
    """Check the order, build the columns, compress, checksum."""

    def fresh() -> SealedBlock:
        # Its cached lengths belong to the cost of a flush.
        return seal(ChangeBatch(batch.first, batch.keys, batch.values))

    assert benchmark(fresh).count == FLUSHED


def test_open_and_check(benchmark: BenchmarkFixture, sealed: SealedBlock) -> None:
    """Header and checksum of the whole block."""
    assert benchmark(open_block, sealed.data).count == FLUSHED


def test_decode(benchmark: BenchmarkFixture, batch: ChangeBatch, sealed: SealedBlock) -> None:
    """All changes as Python objects, as a restore reads them."""
    found = benchmark(open_block(sealed.data).changes)
    assert list(found.keys) == batch.keys and list(found.values) == batch.values


def test_decode_as_arrow(benchmark: BenchmarkFixture, sealed: SealedBlock) -> None:
    """All changes as an Arrow record batch, as the Spark data source reads them."""
    pytest.importorskip("pyarrow")
    assert benchmark(record_batch, [open_block(sealed.data)]).num_rows == FLUSHED


def test_last_writer_wins(benchmark: BenchmarkFixture, batch: ChangeBatch) -> None:
    """Merge four flushes of the same rows, as a replay does, and drain them sorted."""

    def merge() -> int:
        merger = LastWriterWins(1 << 30, SeqNo(0))
        for round_ in range(4):
            again = ChangeBatch(SeqNo(round_ * FLUSHED), batch.keys, batch.values)
            merger.add(again, batch.raw_bytes)
        keys, _ = merger.drain()
        return len(keys)

    assert benchmark(merge) == FLUSHED
