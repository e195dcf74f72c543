"""The change path: what a record costs on its way into the buffer, and a row in a flush."""

from collections.abc import Callable
from operator import add
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.micro.inputs import BUFFER, FLUSHED, row_keys, word
from tidelog.runtime.channels.messages import KeyedBatch
from tidelog.runtime.operators.aggregate import Aggregate
from tidelog.state.backend import KeyedBackend
from tidelog.state.handles.keyed import ListHandle, MapHandle, ValueHandle
from tidelog.state.key_groups import encode_key

WORDS = [word(number, 16) for number in range(BUFFER)]


def test_use_key(benchmark: BenchmarkFixture, backend: KeyedBackend) -> None:
    """Encode a key and find its key group; 2048 keys."""

    def use() -> None:
        for key in WORDS:
            backend.use_encoded_key(encode_key(key))

    benchmark(use)
    assert backend.key == encode_key(WORDS[-1])


def test_value_get_and_update(benchmark: BenchmarkFixture, backend: KeyedBackend) -> None:
    """Read, add one, write: 2048 keys that are in the buffer."""
    state = ValueHandle(backend, "count", "count long")

    def count() -> None:
        for key in WORDS:
            backend.use_encoded_key(encode_key(key))
            before = state.get()
            state.update((1 if before is None else before[0] + 1,))

    count()
    benchmark(count)
    backend.use_encoded_key(encode_key(WORDS[0]))
    value = state.get()
    assert value is not None and value[0] >= 2


def test_value_get_cold(benchmark: BenchmarkFixture, backend: KeyedBackend) -> None:
    """Read 2048 keys that only the table has."""
    state = ValueHandle(backend, "count", "count long")
    for key in WORDS:
        backend.use_encoded_key(encode_key(key))
        state.update((1,))
    backend.flush()
    rows = state.keyed.rows

    def read() -> int:
        while rows.cached_bytes:
            rows.evict(BUFFER)
        found = 0
        for key in WORDS:
            backend.use_encoded_key(encode_key(key))
            value = state.get()
            found += 0 if value is None else value[0]
        return found

    assert benchmark(read) == BUFFER


def test_list_append(benchmark: BenchmarkFixture, backend: KeyedBackend) -> None:
    """Append one element of 100 bytes to each of 2048 lists, in an empty buffer."""
    state = ListHandle(backend, "records", "payload string")
    payload = ("x" * 100,)

    def append() -> None:
        for key in WORDS:
            backend.use_encoded_key(encode_key(key))
            state.appendValue(payload)

    benchmark.pedantic(append, setup=_emptied(backend), rounds=20)
    backend.use_encoded_key(encode_key(WORDS[0]))
    assert list(state.get()) == [payload]


def test_map_update(benchmark: BenchmarkFixture, backend: KeyedBackend) -> None:
    """Set one entry in each of 2048 maps."""
    state = MapHandle(backend, "map", "key string", "count long")

    def update() -> None:
        for key in WORDS:
            backend.use_encoded_key(encode_key(key))
            state.updateValue(("entry",), (1,))

    benchmark.pedantic(update, setup=_emptied(backend), rounds=20)
    backend.use_encoded_key(encode_key(WORDS[0]))
    assert state.getValue(("entry",)) == (1,)


def test_aggregate_a_buffer(benchmark: BenchmarkFixture, backend: KeyedBackend) -> None:
    """The operator of `aggregate`: 2048 distinct keys with counts, all known already."""
    operator = Aggregate(lambda pair: pair[1], add)
    operator.open(_Context(backend))  # type: ignore[arg-type]
    keys = list(map(encode_key, WORDS))
    backend.use_encoded_key(keys[0])
    groups = []
    for key in keys:
        backend.use_encoded_key(key)
        groups.append(backend.key_prefix)
    batch = KeyedBatch([(key, 1) for key in WORDS], keys=keys, groups=groups)
    operator.process(batch)
    benchmark(operator.process, batch)
    assert len(backend.buffer) == BUFFER


@pytest.mark.parametrize("length", [16, 200])
def test_flush(benchmark: BenchmarkFixture, backend: KeyedBackend, length: int) -> None:
    """Sort, encode and write 16,384 changed rows to RocksDB, and hand them to the log."""
    backend.registry.register("count", "value", ("count long",))
    rows = backend.rows(encode_key, bytes, cached=False)
    changed = dict.fromkeys(row_keys(FLUSHED, length), 12_345)
    backend.flush()

    def fill() -> None:
        rows.put_many(changed)

    benchmark.pedantic(backend.flush, setup=fill, rounds=20)
    assert backend.metrics.changes == FLUSHED * backend.metrics.flushes > 0


class _Context:
    """All that `Aggregate.open` asks of its context."""

    def __init__(self, backend: KeyedBackend) -> None:
        self.backend = backend
        self.operator = "counts"


def _emptied(backend: KeyedBackend) -> Callable[[], Any]:
    """Forget what is buffered, without a flush's trace in the table."""

    def setup() -> None:
        backend.buffer.drain()

    return setup
