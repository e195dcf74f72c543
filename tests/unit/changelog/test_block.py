"""The block codec: what is sealed comes back, and nothing else passes for it."""

from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.changelog import columns
from tidelog.changelog.block import iter_blocks, open_block, record_batch, seal, seal_metadata
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


def flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def with_valid_checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data[:36] + data[40:])
    return data[:36] + crc.to_bytes(4, "little") + data[40:]


@given(batches, st.sampled_from([0, 1]))
def test_a_block_gives_back_the_batch_and_the_header_it_was_sealed_with(
    batch: ChangeBatch, level: int
) -> None:
    sealed = seal(batch, compression_level=level)
    block = open_block(sealed.data)
    assert block.changes() == batch
    assert (block.first, block.end) == (batch.first, batch.end)
    for field in ("kind", "first", "end", "count", "key_group_min", "key_group_max", "raw_bytes"):
        assert getattr(block, field) == getattr(sealed, field)
    assert sealed.key_group_min == int.from_bytes(batch.keys[0][:2], "big")
    assert sealed.key_group_max == int.from_bytes(batch.keys[-1][:2], "big")
    assert sealed.raw_bytes == len(block.payload())
    assert sealed.size == block.size == len(sealed.data)


@given(batches)
@settings(max_examples=50)
def test_the_record_batch_holds_the_same_changes(batch: ChangeBatch) -> None:
    arrow = record_batch([open_block(seal(batch).data)])
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


def test_a_payload_above_the_limit_is_not_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_PAYLOAD_BYTES", 10)
    for sealing in (lambda: seal(SMALL), lambda: seal_metadata(b"x" * 11, SeqNo(0))):
        with pytest.raises(InvariantError, match="at most 10 bytes"):
            sealing()
