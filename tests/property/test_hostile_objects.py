"""Whatever bytes somebody puts into a store: reading them gives an error of tidelog, or values.

Golden objects are damaged at random and their checksums made right again, as somebody would do who
wants to harm a reader. `TIDELOG_TEST_SEED` chooses other damages; a deep run tries a million.
"""

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import msgspec
import pytest

from tests.golden import golden_in_flight
from tests.golden.writing import FOLDER
from tests.support.depth import more_in_depth
from tidelog.changelog import block as blocks
from tidelog.changelog import segment as segments
from tidelog.checkpoint import local_copies
from tidelog.checkpoint.manifest import (
    Checkpoint,
    decode_descriptor,
    decode_entry,
    encode_descriptor,
)
from tidelog.errors import CorruptObjectError, RestoreError, TidelogError
from tidelog.runtime.in_flight.codec import decode
from tidelog.runtime.in_flight.record_types import RecordTypes
from tidelog.runtime.sinks import transactions
from tidelog.runtime.sinks.parts import Part
from tidelog.runtime.tasks.sink_output import transactions_of
from tidelog.spark.format.changelog import read_changelog
from tidelog.spark.format.index import read_index
from tidelog.spark.format.segment import read_footer as read_spark_footer
from tidelog.storage.document import checksum
from tidelog.table.frame import decode_rows, encode_rows
from tidelog.table.memory import INDEX_NAME, MemoryTableFactory
from tidelog.table.rocksdb_snapshot import SNAPSHOT_NAME, unpack

SEED = os.environ.get("TIDELOG_TEST_SEED", "hostile")
DAMAGES = more_in_depth(1_500, 50_000)
"""Of each object."""

Reader = Callable[[bytes], object]
Sealer = Callable[[bytes], bytes]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one to four changes of any kind."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data)) if data else 0
        end = min(len(data), at + rng.choice((1, 2, 4, 8, 40)))
        other = rng.randrange(len(data)) if data else 0
        data = rng.choice(
            (
                data[:at] + rng.randbytes(end - at) + data[end:],
                data[:at] + bytes([0xFF] * (end - at)) + data[end:],
                data[:at] + bytes(end - at) + data[end:],
                data[:at] + data[end:],
                data[:at] + rng.randbytes(rng.randint(1, 9)) + data[at:],
                data[:at] + data[other : other + end - at] + data[end:],
                data[:at] + str(rng.choice((-1, 0, 2**31, 2**63, 2**64))).encode() + data[end:],
            )
        )
    return data


def sealed_block(data: bytes) -> bytes:
    """With the length and the checksum that a block of these bytes has."""
    if len(data) < blocks.HEADER.size:
        return data
    fields = list(blocks.HEADER.unpack_from(data))
    stored = data[blocks.HEADER.size :]
    fields[8] = len(stored)
    header = blocks.HEADER.pack(*fields)[: blocks.HEADER.size - 4]
    crc = google_crc32c.extend(google_crc32c.value(header), stored)
    return header + struct.pack("<I", crc) + stored


def sealed_document(data: bytes) -> bytes:
    """With the checksum that its body has, if it still has a body."""
    start, separator, rest = data.partition(b'{"body":')
    body, crc_name, _ = rest.rpartition(b',"crc32c":"')
    if not separator or not crc_name:
        return data
    return start + separator + body + crc_name + checksum(body).encode() + b'"}\n'


def sealed_segment(data: bytes) -> bytes:
    """With the places and checksums that footer and header have."""
    if len(data) < segments.HEADER_BYTES + segments.TRAILER_BYTES:
        return data
    header = data[: segments.HEADER_BYTES - 4]
    body = data[segments.HEADER_BYTES : -segments.TRAILER_BYTES]
    trailer = data[-segments.TRAILER_BYTES : -8]
    footer_at = int.from_bytes(trailer[:8], "little")
    crc = google_crc32c.value(data[footer_at : -segments.TRAILER_BYTES] + trailer)
    sealed = header + struct.pack("<I", google_crc32c.value(header)) + body
    return sealed + trailer + struct.pack("<I", crc) + data[-4:]


def sealed_rows(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<I", google_crc32c.value(data[:-4]))


def read_block(data: bytes) -> object:
    opened = blocks.open_block(data)
    match opened.kind:
        case blocks.BlockKind.CHANGES:
            return opened.changes(), opened.record_batch()
        case blocks.BlockKind.METADATA | blocks.BlockKind.SPARK_CHANGELOG:
            return opened.payload()
        case _:
            return decode([opened], golden_in_flight.TYPES), decode([opened], RecordTypes())


def read_entry(data: bytes) -> object:
    entry = decode_entry(data, "slot")
    return entry, transactions_of([entry]) if isinstance(entry, Checkpoint) else ()


def cases() -> list[tuple[str, Reader, Sealer]]:
    found: list[tuple[str, Reader, Sealer]] = []
    for path in sorted(FOLDER.iterdir()):
        name = path.name
        if name.startswith("block_"):
            found.append((name, read_block, sealed_block))
        elif name.startswith("slot_"):
            found.append((name, read_entry, sealed_document))
        elif name.startswith("descriptor_"):
            found.append((name, lambda data: decode_descriptor(data, "it"), sealed_document))
        elif name.startswith("segment_"):
            found.append((name, lambda data: segments.read_footer(data, "it"), sealed_segment))
        elif name.startswith("spark_segment_"):
            found.append((name, lambda data: read_spark_footer(data, "it"), sealed_segment))
        elif name.startswith("spark_changelog_"):
            found.append((name, lambda data: read_changelog(data, "it"), lambda data: data))
        elif name.startswith("spark_roll_up_"):
            found.append(
                (
                    name,
                    lambda data: read_index(data.decode(errors="replace"), "it"),
                    sealed_document,
                )
            )
    return found


@pytest.mark.parametrize(("name", "read", "seal"), cases(), ids=[name for name, *_ in cases()])
def test_a_damaged_object_is_an_error_of_tidelog_or_values(
    name: str, read: Reader, seal: Sealer
) -> None:
    golden = (FOLDER / name).read_bytes()
    rng = random.Random(f"{SEED} {name}")
    refused = 0
    for number in range(DAMAGES):
        data = damaged(golden, rng)
        for hostile in (data, seal(data)):
            try:
                read(hostile)
            except TidelogError:
                refused += 1
            except Exception as error:
                raise AssertionError(f"damage {number} of {name}: {hostile!r}") from error
    assert refused > DAMAGES / 2


def test_damaged_rows_of_a_snapshot_are_an_error_of_tidelog_or_rows() -> None:
    golden = encode_rows([(b"CURRENT", b"MANIFEST-000005\n"), (b"000012.sst", b"4711")])
    rng = random.Random(f"{SEED} rows")
    for _ in range(DAMAGES):
        data = damaged(golden, rng)
        for hostile in (data, sealed_rows(data)):
            try:
                decode_rows(hostile, Path("SNAPSHOT"))
            except TidelogError:
                continue


@pytest.mark.parametrize("opening", ['{"body":', '{"body":{"format":1,"kind":"start","history":'])
def test_a_document_of_a_million_levels_is_damaged(opening: str) -> None:
    data = sealed_document((opening + "[" * 10**6 + "]" * 10**6 + '},"crc32c":"').encode())
    with pytest.raises(CorruptObjectError):
        decode_entry(data, "slot")


@pytest.mark.parametrize("name", ["../../etc/cron.d/job", "/etc/passwd", "..", "a/b", ""])
def test_a_file_of_a_table_has_a_name_and_no_path(name: str, tmp_path: Path) -> None:
    golden = decode_descriptor((FOLDER / "descriptor_v1.json").read_bytes(), "it")
    shared = msgspec.structs.replace(golden.shared[0], name=name)
    for hostile in (
        msgspec.structs.replace(golden, shared=(shared,)),
        msgspec.structs.replace(golden, private={name: b"harm"}),
    ):
        with pytest.raises(CorruptObjectError):
            decode_descriptor(encode_descriptor(hostile), "it")
    part = msgspec.msgpack.encode([Part(name, "final", 1, 2)])
    with pytest.raises(RestoreError):
        transactions.decode("sink", list[Part], part)


@pytest.mark.parametrize("name", [b"../harm", b"/tmp/harm", b"harm", b"CURRENT/../harm"])
def test_a_snapshot_writes_rocksdbs_own_files_and_no_other(name: bytes, tmp_path: Path) -> None:
    directory = tmp_path / "table"
    directory.mkdir()
    (directory / SNAPSHOT_NAME).write_bytes(encode_rows([(name, b"harm")]))
    with pytest.raises(CorruptObjectError, match="names of RocksDB's files"):
        unpack(directory)
    assert [path.name for path in tmp_path.rglob("*")] == ["table", SNAPSHOT_NAME]


def test_an_index_of_rows_in_memory_names_its_own_files_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "harm").write_bytes(encode_rows([(b"k", b"v")]))
    directory = tmp_path / "table"
    directory.mkdir()
    (directory / INDEX_NAME).write_bytes(encode_rows([(b"../harm", b"")]))
    with pytest.raises(CorruptObjectError, match="names of files with rows"):
        MemoryTableFactory().restore(directory)


@pytest.mark.parametrize(
    "name",
    [
        "segments/../../harm",
        "segments/00000000-a-0000000001.seg/../../../harm",
        f"tables/../{'0' * 32}-x.sst",
        f"tables/00000000/{'0' * 32}-../../harm.sst",
    ],
)
def test_no_copy_on_the_local_disk_has_a_name_that_leads_out_of_its_directory(name: str) -> None:
    assert not local_copies.copied(name)
