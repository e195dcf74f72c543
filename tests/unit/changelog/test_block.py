"""The block codec: what is sealed comes back, and nothing else passes for it."""

import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.changelog import columns
from tidelog.changelog.block import (
    CODEC_NONE,
    CODEC_ZSTD,
    HEADER,
    LAST_KEY_GROUP,
    Block,
    BlockKind,
    iter_blocks,
    open_block,
    seal,
    seal_metadata,
    seal_opaque,
)
from tidelog.changelog.change import OP_DELETE, OP_PUT, ChangeBatch
from tidelog.errors import CorruptObjectError, FormatVersionError, InvariantError
from tidelog.ids import SeqNo

row_keys = st.binary(min_size=4, max_size=12)
rows = st.dictionaries(row_keys, st.none() | st.binary(max_size=40), min_size=1, max_size=60)
batches = st.builds(
    lambda first, rows: ChangeBatch(SeqNo(first), sorted(rows), [rows[k] for k in sorted(rows)]),
    st.integers(0, 2**64 - 1),
    rows,
)


def row(group: int, state: int, key: bytes) -> bytes:
    return group.to_bytes(2, "big") + state.to_bytes(2, "big") + key


SMALL = ChangeBatch(
    SeqNo(41), [row(3, 1, b"a"), row(3, 2, b"b"), row(700, 1, b"")], [b"one", None, b""]
)

KEY_LENGTHS = HEADER.size + 3
VALUE_LENGTHS = KEY_LENGTHS + 3 * 4 + 14
"""Where the lengths of SMALL's 3 row keys, which take 14 bytes, and of its values start."""


def flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def with_valid_checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data[:36] + data[40:])
    return data[:36] + crc.to_bytes(4, "little") + data[40:]


@given(batches, st.sampled_from([0, 1]))
def test_a_block_gives_back_the_batch_it_was_sealed_from(batch: ChangeBatch, level: int) -> None:
    sealed = seal(batch, compression_level=level)
    block = open_block(sealed.data)
    assert block.changes() == batch
    assert (block.first, block.end) == (batch.first, batch.end)


@given(batches)
def test_sealed_and_opened_block_agree_on_what_the_header_says(batch: ChangeBatch) -> None:
    sealed = seal(batch)
    block = open_block(sealed.data)
    for field in ("kind", "first", "end", "count", "key_group_min", "key_group_max", "raw_bytes"):
        assert getattr(block, field) == getattr(sealed, field)
    assert sealed.key_group_min == int.from_bytes(batch.keys[0][:2], "big")
    assert sealed.key_group_max == int.from_bytes(batch.keys[-1][:2], "big")
    assert sealed.raw_bytes == len(block.payload())
    assert sealed.size == block.size == len(sealed.data)


@given(batches)
@settings(max_examples=50)
def test_the_record_batch_holds_the_same_changes(batch: ChangeBatch) -> None:
    arrow = open_block(seal(batch).data).record_batch()
    assert arrow.schema == pa.schema(
        {
            "op": pa.uint8(),
            "key_group": pa.uint16(),
            "state_id": pa.uint16(),
            "key": pa.binary(),
            "value": pa.binary(),
        }
    )
    columns = arrow.to_pydict()
    assert columns["key"] == batch.keys
    assert columns["value"] == batch.values
    assert columns["op"] == [OP_DELETE if v is None else OP_PUT for v in batch.values]
    assert columns["key_group"] == [int.from_bytes(k[:2], "big") for k in batch.keys]
    assert columns["state_id"] == [int.from_bytes(k[2:4], "big") for k in batch.keys]


def test_the_record_batch_does_not_copy_keys_and_values() -> None:
    block = open_block(seal(SMALL, compression_level=0).data)
    payload = pa.py_buffer(block.stored)
    arrow = block.record_batch()
    for column in ("key", "value"):
        data = arrow[column].buffers()[2]
        assert payload.address <= data.address <= payload.address + payload.size, column


def test_the_sections_of_the_payload_follow_each_other_without_padding() -> None:
    sections = [
        bytes([OP_PUT, OP_DELETE, OP_PUT]),
        bytes([5, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0]),
        b"".join(SMALL.keys),
        bytes([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        b"one",
    ]
    assert open_block(seal(SMALL).data).payload() == b"".join(sections)


def test_a_payload_that_shrinks_is_compressed() -> None:
    batch = ChangeBatch(SeqNo(0), [row(0, 0, b"k")], [b"x" * 1000])
    assert open_block(seal(batch).data).codec == CODEC_ZSTD


def test_a_payload_that_hardly_shrinks_is_stored_as_it_is() -> None:
    sealed = seal(SMALL)
    assert open_block(sealed.data).codec == CODEC_NONE
    assert len(sealed.data) == HEADER.size + sealed.raw_bytes


def test_metadata_counts_no_change_and_concerns_every_key_group() -> None:
    block = open_block(seal_metadata(b"states", SeqNo(7)).data)
    assert (block.kind, block.payload()) == (BlockKind.METADATA, b"states")
    assert (block.first, block.end) == (7, 7)
    assert (block.key_group_min, block.key_group_max) == (0, LAST_KEY_GROUP)


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_an_opaque_payload_comes_back_unchanged(payload: bytes, count: int) -> None:
    sealed = seal_opaque(BlockKind.SPARK_CHANGELOG, payload, count, SeqNo(5))
    block = open_block(sealed.data)
    assert (block.kind, block.payload()) == (BlockKind.SPARK_CHANGELOG, payload)
    assert (block.first, block.end) == (5, 5 + count)


def test_blocks_one_after_the_other_are_read_in_order() -> None:
    sealed = [seal_metadata(b"m", SeqNo(41)), seal(SMALL), seal_metadata(b"n", SeqNo(44))]
    data = b"".join(block.data for block in sealed)
    blocks = list(iter_blocks(data, base=1000))
    assert [block.kind for block in blocks] == [block.kind for block in sealed]
    assert [block.offset for block in blocks] == [1000, 1041, 1041 + sealed[1].size]


@pytest.mark.parametrize(
    "batch",
    [
        *(ChangeBatch(SeqNo(first), SMALL.keys, SMALL.values) for first in (0, 1, 2**40)),
        ChangeBatch(SeqNo(1), [row(0, 0, b"k")], [b"x" * 1000]),
    ],
    ids=["first of all", "second", "late", "compressed"],
)
def test_every_flipped_bit_is_detected(batch: ChangeBatch) -> None:
    data = seal(batch).data
    for position in range(len(data)):
        for bit in range(8):
            with pytest.raises((CorruptObjectError, FormatVersionError)):
                open_block(flipped(data, position, bit))


def test_every_truncation_is_detected() -> None:
    data = seal(SMALL).data
    for length in range(len(data)):
        with pytest.raises(CorruptObjectError, match="truncated"):
            open_block(data[:length])


def test_damage_is_reported_with_object_offset_and_both_checksums() -> None:
    sealed = seal(SMALL)
    data = bytes(100) + flipped(sealed.data, sealed.size - 1, 0)
    with pytest.raises(CorruptObjectError) as caught:
        open_block(data, 100, "segments/x.seg", base=5000)
    assert "segments/x.seg is damaged at byte 5100" in str(caught.value)
    assert "CRC32C" in (caught.value.expected or "")
    assert caught.value.found
    assert caught.value.action


@pytest.mark.parametrize("version", [2, 3, 255])
def test_a_newer_version_is_refused_by_name(version: int) -> None:
    data = bytearray(seal(SMALL).data)
    data[4] = version
    with pytest.raises(FormatVersionError, match=r"segments/x\.seg") as caught:
        open_block(bytes(data), name="segments/x.seg")
    assert caught.value.found == f"version {version}"


@pytest.mark.parametrize("position", [5, 6, 7])
def test_an_unknown_kind_codec_or_flag_is_taken_for_a_newer_release(position: int) -> None:
    data = bytearray(seal(SMALL).data)
    data[position] = 9
    with pytest.raises(FormatVersionError):
        open_block(with_valid_checksum(bytes(data)))


def test_a_wrong_payload_under_a_valid_checksum_is_still_refused() -> None:
    sealed = seal(SMALL)
    for name, position, value in [
        ("operation", HEADER.size, 7),
        ("key length", KEY_LENGTHS, 6),
        ("value length", VALUE_LENGTHS, 2),
        ("number of changes", 16, 2),
        ("no changes", 16, 0),
        ("too many changes", 16, 200),
        ("raw length", 20, 1),
        ("key bytes", 28, 1),
        ("order of row keys", KEY_LENGTHS + 3 * 4, 0xFF),
    ]:
        data = bytearray(sealed.data)
        data[position] = value
        block = open_block(with_valid_checksum(bytes(data)))
        with pytest.raises(CorruptObjectError):
            block.changes()
            pytest.fail(name)


@pytest.mark.parametrize("lengths_at", [KEY_LENGTHS, VALUE_LENGTHS])
@pytest.mark.parametrize("read", [Block.changes, Block.record_batch])
def test_lengths_that_lead_out_of_the_payload_are_refused(
    read: Callable[[Block], object], lengths_at: int
) -> None:
    total = sum(struct.unpack_from("<3I", seal(SMALL).data, lengths_at))
    too_long, wrapping = (1 << 20, 0, 0), (2**32 - 1, 1 + total, 0)
    for lengths in (too_long, wrapping):
        data = bytearray(seal(SMALL).data)
        struct.pack_into("<3I", data, lengths_at, *lengths)
        with pytest.raises(CorruptObjectError, match=f"{total} bytes"):
            read(open_block(with_valid_checksum(bytes(data))))


def test_a_payload_longer_than_the_format_allows_is_refused() -> None:
    data = bytearray(seal(SMALL).data)
    data[20:24] = (2**31).to_bytes(4, "little")
    with pytest.raises(CorruptObjectError, match="2147483648 bytes"):
        open_block(with_valid_checksum(bytes(data)))


def test_a_row_key_without_its_prefix_never_reaches_arrow() -> None:
    with pytest.raises(CorruptObjectError, match="row keys"):
        open_block(seal(ChangeBatch(SeqNo(0), [b"abc"], [b""])).data).record_batch()


def test_a_broken_zstd_frame_under_a_valid_checksum_is_refused() -> None:
    sealed = seal(ChangeBatch(SeqNo(1), [row(0, 0, b"k")], [b"x" * 1000]))
    data = bytearray(sealed.data)
    data[HEADER.size] ^= 1
    with pytest.raises(CorruptObjectError, match="zstd"):
        open_block(with_valid_checksum(bytes(data))).changes()
    assert open_block(sealed.data).changes().values == [b"x" * 1000], "the next block is whole"


def test_threads_seal_and_open_blocks_side_by_side() -> None:
    batches = [
        ChangeBatch(SeqNo(1), [row(0, 0, b"k")], [bytes([n]) * 10 ** (n % 6)]) for n in range(100)
    ]

    def sealed_and_opened(batch: ChangeBatch) -> tuple[bytes, ChangeBatch]:
        data = seal(batch).data
        return data, open_block(data).changes()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(sealed_and_opened, batches))
    assert [changes.values for _, changes in found] == [batch.values for batch in batches]
    assert [data for data, _ in found] == [seal(batch).data for batch in batches]


@pytest.mark.parametrize("keys", [[], [b"0002b", b"0002a"], [b"0002a", b"0002a"]])
def test_only_ascending_changes_are_sealed(keys: list[bytes]) -> None:
    with pytest.raises(InvariantError):
        seal(ChangeBatch(SeqNo(0), keys, [b""] * len(keys)))


def test_a_batch_with_more_keys_than_values_is_not_sealed() -> None:
    with pytest.raises(InvariantError, match="2 row keys and 1 values"):
        seal(ChangeBatch(SeqNo(0), [b"0002a", b"0002b"], [b""]))


def test_a_payload_above_the_limit_is_not_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_PAYLOAD_BYTES", 10)
    for sealing in (lambda: seal(SMALL), lambda: seal_metadata(b"x" * 11, SeqNo(0))):
        with pytest.raises(InvariantError, match="at most 10 bytes"):
            sealing()


def test_metadata_is_not_read_as_changes() -> None:
    with pytest.raises(InvariantError):
        open_block(seal_metadata(b"states", SeqNo(0)).data).changes()


def test_prefix_freedom_of_encoded_keys_makes_row_prefixes_exact() -> None:
    keys = ["", "a", "ab", "a" * 40, 1, 128, 70000, None, ("a",), ("a", "b"), b"a"]
    encoded = [msgspec.msgpack.encode(key) for key in keys]
    for one in encoded:
        assert [other for other in encoded if other.startswith(one)] == [one]
