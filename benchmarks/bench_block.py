"""What one flush costs in the block codec, and the layouts compared in docs/decisions/001.

Run: `python -m pytest benchmarks/bench_block.py --benchmark-columns=min,median`
"""

import random
import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, islice, pairwise
from operator import lt
from os.path import commonprefix

import google_crc32c
import msgspec
import pytest
import zstandard

from tidelog.changelog.block import open_block, seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.replay import LastWriterWins
from tidelog.ids import SeqNo

COUNT = 16_384
KEY_GROUPS = 128


def flush() -> ChangeBatch:
    """16,384 changes of a word count: 21-byte row keys, values of 2 to 9 bytes."""
    rng, encode = random.Random(1), msgspec.msgpack.Encoder().encode
    rows = {}
    while len(rows) < COUNT:
        key = encode(f"{rng.randrange(3_000_000):016d}")
        group = google_crc32c.value(key) % KEY_GROUPS
        value = encode(rng.choice([rng.randrange(100_000), rng.randrange(2**40)]))
        rows[group.to_bytes(2, "big") + b"\x00\x01" + key] = value
    keys = sorted(rows)
    return ChangeBatch(SeqNo(0), keys, [rows[key] for key in keys])


BATCH = flush()
SEALED = seal(BATCH)


def lengths(column: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(column)}I", *map(len, column))


def full_row_keys(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    ops = b"\1" * len(keys)
    return b"".join((ops, lengths(keys), b"".join(keys), lengths(values), b"".join(values)))


def split_prefix(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    prefixes, bare = array("H", b"".join([key[:4] for key in keys])), [key[4:] for key in keys]
    prefixes.byteswap()
    columns = b"\1" * len(keys), prefixes[::2].tobytes(), prefixes[1::2].tobytes()
    return b"".join((*columns, lengths(bare), b"".join(bare), lengths(values), b"".join(values)))


def offsets(column: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(column) + 1}i", *accumulate(map(len, column), initial=0))


def arrow_offsets(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    ops = b"\1" * len(keys)
    return b"".join((ops, offsets(keys), b"".join(keys), offsets(values), b"".join(values)))


def one_byte_lengths(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    key_lengths, value_lengths = bytes(map(len, keys)), bytes(map(len, values))
    ops = b"\1" * len(keys)
    return b"".join((ops, key_lengths, b"".join(keys), value_lengths, b"".join(values)))


def lengths_in_front(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    ops = b"\1" * len(keys)
    return b"".join((lengths(keys), lengths(values), ops, b"".join(keys), b"".join(values)))


def interleaved_rows(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    parts = []
    for key, value in zip(keys, values, strict=True):
        parts += bytes((1, len(key), len(value))), key, value
    return b"".join(parts)


def shared_prefixes(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    shared = [0, *(len(commonprefix(pair)) for pair in pairwise(keys))]  # noqa: RUF071 - no paths
    rest = [key[length:] for key, length in zip(keys, shared, strict=True)]
    return bytes(shared) + one_byte_lengths(rest, values)


def transposed_keys(keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    """Byte i of all keys, then byte i + 1: possible only where all keys are equally long."""
    joined, size, ops = b"".join(keys), len(keys[0]), b"\1" * len(keys)
    transposed = b"".join([joined[at::size] for at in range(size)])
    return b"".join((ops, lengths(keys), transposed, lengths(values), b"".join(values)))


LAYOUTS = [
    full_row_keys,
    split_prefix,
    arrow_offsets,
    one_byte_lengths,
    lengths_in_front,
    interleaved_rows,
    shared_prefixes,
    transposed_keys,
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_payload_layouts(benchmark: Callable[..., bytes], layout: Callable[..., bytes]) -> None:
    payload = benchmark(layout, BATCH.keys, BATCH.values)
    stored = zstandard.ZstdCompressor(level=1).compress(payload)
    benchmark.extra_info["raw_bytes"] = len(payload)
    benchmark.extra_info["stored_bytes"] = len(stored)
    print(f"\n{layout.__name__}: {len(payload)} bytes raw, {len(stored)} stored")


def test_ascending_order_check(benchmark: Callable[..., bool]) -> None:
    keys = BATCH.keys
    assert benchmark(lambda: all(map(lt, keys, islice(keys, 1, None))))


def test_seal(benchmark: Callable[..., object]) -> None:
    benchmark(seal, BATCH)


def test_open_and_check(benchmark: Callable[..., object]) -> None:
    benchmark(open_block, SEALED.data)


def test_read_changes(benchmark: Callable[..., object]) -> None:
    benchmark(open_block(SEALED.data).changes)


def test_read_record_batch(benchmark: Callable[..., object]) -> None:
    benchmark(open_block(SEALED.data).record_batch)


def test_merge_and_drain(benchmark: Callable[..., object]) -> None:
    def merge() -> None:
        merger = LastWriterWins(1 << 30, SeqNo(0))
        merger.add(BATCH)
        merger.drain()

    benchmark(merge)
