"""Whoever reads bytes that somebody else may have written: each parser, with examples of its input.

A sealer makes the checksums right again, as somebody would do who wants to harm a reader.
"""

import io
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import google_crc32c
import msgspec

from tests.golden import golden_encryption, golden_in_flight
from tests.golden.writing import FOLDER
from tidelog import Checkpoint, CorruptObjectError
from tidelog.changelog import block as blocks
from tidelog.changelog import segment as segments
from tidelog.checkpoint.descriptor import decode_descriptor
from tidelog.checkpoint.manifest import StateInfo, decode_entry
from tidelog.connectors import transactions
from tidelog.connectors.files.parts import Part
from tidelog.connectors.iceberg import staged as iceberg
from tidelog.connectors.kafka.writing.staging import StagedRange, StagingStart
from tidelog.connectors.sql.sqlite import stored_transaction
from tidelog.connectors.sql.staging import StagedTransaction
from tidelog.connectors.transactions import TransactionId
from tidelog.runtime.control.protocol import (
    Done,
    Failed,
    Progress,
    Request,
    decode_line,
    decode_request,
    encode,
)
from tidelog.runtime.in_flight.codec import decode
from tidelog.runtime.tasks.sink_output import token_of, transactions_of
from tidelog.spark.checkpoint.commits import read_commit, read_offsets, read_query_id
from tidelog.spark.format.changelog import read_changelog
from tidelog.spark.format.index import read_index
from tidelog.spark.format.segment import read_footer as read_spark_footer
from tidelog.state.objects.classes import RecordTypes
from tidelog.state.operator_state import BroadcastState
from tidelog.state.schema.decode import RowDecoder
from tidelog.state.schema.schema import parse_schema
from tidelog.storage.document import checksum, open_document, seal_document
from tidelog.storage.encryption.sealed import HEADER, key_id_of, open_whole
from tidelog.storage.log_store import Partner
from tidelog.table.frame import decode_rows, encode_rows
from tidelog.verify.query.files import check_hadoop, check_spark
from tidelog.verify.query.table import unzipped

Sealer = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Parser:
    """One reader of bytes."""

    read: Callable[[bytes], object]
    examples: tuple[bytes, ...]
    seal: Sealer = bytes
    tolerant: bool = False
    """Much of what is damaged is another input to it, and no error."""


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
            return opened.changes(), blocks.record_batch([opened])
        case blocks.BlockKind.METADATA | blocks.BlockKind.SPARK_CHANGELOG:
            return opened.payload()
        case _:
            return decode([opened], golden_in_flight.TYPES), decode([opened], RecordTypes())


def read_entry(data: bytes) -> object:
    entry = decode_entry(data, "slot")
    return entry, transactions_of([entry]) if isinstance(entry, Checkpoint) else ()


def read_sealed(data: bytes) -> object:
    """A whole encrypted object, and a range of it."""
    place = golden_encryption.PLACE
    key_id_of(data[:HEADER], place)
    return open_whole(data, golden_encryption.KEY, place)


def read_answer(data: bytes) -> object:
    try:
        return decode_line(data)
    except msgspec.MsgspecError as error:  # what the client takes for the job's end
        raise CorruptObjectError("answer", action="none") from error


def read_offsets_of_spark(data: bytes) -> object:
    try:
        return read_offsets(data)
    except ValueError as error:  # what its callers take for damage
        raise CorruptObjectError("offsets", action="none") from error


def read_metadata_of_spark(data: bytes) -> object:
    try:
        return read_query_id(data)
    except ValueError as error:  # what its callers take for damage
        raise CorruptObjectError("metadata", action="none") from error


KINDS = [
    StateInfo(1, "whole", "aggregate", ("msgpack",)),
    StateInfo(2, "splits", "splits", ("msgpack",)),
    StateInfo(3, "timers", "timers", ("key string",)),
    StateInfo(4, "timers-by-time", "timers", ("key string",)),
    StateInfo(5, "value", "value", ("count bigint, at timestamp, rest array<decimal>",)),
    StateInfo(6, "expiring", "value", ("count bigint, day date",), ttl_ms=1000),
    StateInfo(7, "list", "list", ("word string",), ttl_ms=1000),
    StateInfo(8, "map", "map", ("word string", "inner struct<a:map<string,int>,b:binary>")),
    StateInfo(9, "sums", "window-aggregate", ("10000",)),
    StateInfo(10, "records", "window-records", ("10000",)),
    StateInfo(11, "left", "timed-records", ("msgpack", "any")),
    StateInfo(12, "left-marks", "timed-marks", ("any",)),
    StateInfo(13, "left-batches", "timed-batches", ("any",)),
]
"""A state of every kind that has rows."""


def read_row(data: bytes) -> object:
    """Any bytes as key and value of rows of all kinds, and as a delete."""
    decoder = RowDecoder(KINDS)
    return [
        msgspec.json.encode(decoder.decode(b"\0\x01" + info.id.to_bytes(2, "big") + key, value))
        for info in KINDS
        for key, value in ((data, data), (data, None), (b"\xa1k", data))
    ]


def read_operator_state(data: bytes) -> object:
    return BroadcastState("it", [data])


def read_zip(data: bytes) -> object:
    return unzipped(data, "1_a.zip")


def zipped(metadata: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("CURRENT", b"MANIFEST-000005\n")
        archive.writestr("metadata", b"v1\n" + metadata)
    return made.getvalue()


def golden(pattern: str) -> tuple[bytes, ...]:
    found = tuple(path.read_bytes() for path in sorted(FOLDER.glob(pattern)))
    assert found, pattern
    return found


def packed(*values: object) -> tuple[bytes, ...]:
    return tuple(map(msgspec.msgpack.encode, values))


TX = TransactionId("sink", 0, 3, "a", 7)
PARSERS: dict[str, Parser] = {
    "block": Parser(read_block, golden("block_*"), sealed_block),
    "slot": Parser(read_entry, golden("slot_*"), sealed_document),
    "descriptor": Parser(
        partial(decode_descriptor, name="it"), golden("descriptor_*"), sealed_document
    ),
    "log store": Parser(
        lambda data: open_document(data, "log-store.json", Partner),
        (seal_document(Partner("an id", "s3://bucket/log")),),
        sealed_document,
    ),
    "encrypted object": Parser(read_sealed, golden("sealed_*")),
    "keys of an encrypted store": Parser(
        golden_encryption.ring_of, golden("store_keys_*"), sealed_document
    ),
    "segment": Parser(
        lambda data: segments.read_footer(data, "it"), golden("segment_*"), sealed_segment
    ),
    "spark segment": Parser(
        lambda data: read_spark_footer(data, "it"), golden("spark_segment_*"), sealed_segment
    ),
    "spark changelog": Parser(lambda data: read_changelog(data, "it"), golden("spark_changelog_*")),
    "spark roll-up": Parser(
        lambda data: read_index(data.decode(errors="replace"), "it"),
        golden("spark_roll_up_*"),
        sealed_document,
    ),
    "spark commit": Parser(
        lambda data: read_commit(7, data, "commits/7"), golden("spark_commit_*")
    ),
    "spark offsets": Parser(
        read_offsets_of_spark,
        (
            b'v1\n{"batchWatermarkMs":0,"conf":{"a":"b"}}\n{"0":1}\n-',
            b'v2\n{"batchWatermarkMs":0,"conf":{"a":"b"}}\n0:{"0":1}\norders:-',
        ),
    ),
    "spark metadata": Parser(read_metadata_of_spark, (b'{"id":"4f0c"}',), tolerant=True),
    "spark snapshot": Parser(
        read_zip,
        (
            zipped(
                b'{"sstFiles":[{"localFileName":"1.sst","dfsSstFileName":"1-a.sst","sizeBytes":9}]}'
            ),
        ),
    ),
    "spark checksum": Parser(
        lambda data: check_spark(b"data", data, "1.zip"),
        (b'{"algorithm":"CRC32C","value":1,"mainFileSize":4}',),
    ),
    "hadoop checksum": Parser(
        lambda data: check_hadoop(b"data", data, "1.delta"), (b"crc\0\0\0\x02\0" + bytes(4),)
    ),
    "rows of a snapshot": Parser(
        lambda data: decode_rows(data, Path("SNAPSHOT")),
        (encode_rows([(b"CURRENT", b"MANIFEST-000005\n"), (b"000012.sst", b"4711")]),),
        sealed_rows,
    ),
    "rows of a state": Parser(
        read_row,
        packed(
            "key", 7, [True, {"at": 1.5}], [b"\xa1k", b"x"], [True, msgspec.msgpack.Ext(9, b"x")]
        ),
        tolerant=True,
    ),
    "schema of a state": Parser(
        lambda data: parse_schema(data.decode(errors="replace")),
        (b"count long, tags array<string>", b"struct<a:map<string,struct<b:decimal(10,2)>>>"),
    ),
    "operator state": Parser(read_operator_state, packed(["k", "v"], [[1, 2], {"a": None}])),
    "transaction": Parser(token_of, packed((7, b"a sink's own"))),
    "transaction of files": Parser(
        lambda data: transactions.decode("sink", list[Part], data),
        packed([Part("part-0", "part-0-final", 1, 2, "part-0-final", 3, 0)]),
    ),
    "transaction of a database": Parser(
        lambda data: transactions.decode("sink", StagedTransaction, data),
        packed(StagedTransaction(TX, 3, "INSERT")),
    ),
    "transaction of iceberg": Parser(
        lambda data: transactions.decode("sink", iceberg.Staged, data),
        packed(
            iceberg.Staged(
                TX,
                "lake.t",
                0,
                (
                    iceberg.StagedFile(
                        "a", 1, 1, (b"x", None), {1: 2}, {}, {}, {}, {1: b"a"}, {}, [4]
                    ),
                ),
            )
        ),
    ),
    "transaction of kafka": Parser(
        lambda data: transactions.decode("sink", StagedRange, data),
        packed(StagedRange("staging", 0, StagingStart(3, "a"), 7, 2, 9, 11)),
    ),
    "transaction of sqlite": Parser(
        partial(stored_transaction, "sink"), packed(("sink", 0, "3-a-7", 3, "INSERT"))
    ),
    "request on the control socket": Parser(
        decode_request, (encode(Request("memory://it", "stop", name="a", timeout_s=2.5)),)
    ),
    "answer on the control socket": Parser(
        read_answer,
        (
            encode(Done("job", 1, status={"operators": [{"id": "a"}]})),
            encode(Progress(1, 2)),
            encode(Failed("ConfigError", "it", None, None, "none", True)),
        ),
    ),
}
"""By what they read."""
