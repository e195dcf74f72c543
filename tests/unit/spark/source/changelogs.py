"""Synthetic checkpoints whose changelogs are real: bytes as Spark writes them, records known."""

import struct
from typing import Any

import zstandard

from tests.unit.spark.synthetic import Synthetic
from tidelog.spark.format.names import ChangelogName

Row = dict[str, Any]

_CODES = {"put": 0x01, "delete": 0x10, "merge": 0x11, "delete_range": 0x20}


def records_of(name: ChangelogName) -> list[tuple[str, bytes, bytes | None]]:
    """What a changelog holds: operation, key, value; different for every name."""
    own = f"{name.path}|".encode()
    return [
        *(("put", own + bytes([number]), own * number) for number in range(3 + name.version % 4)),
        ("delete", own + b"gone", None),
        ("merge", own + b"list", b"one more"),
        ("delete_range", own + b"from", own + b"to"),
    ]


def content_of(name: ChangelogName) -> bytes:
    """The bytes of that changelog, in version 4."""
    body = b"\0\2v4" + b"\0\2[]"
    for op, key, value in records_of(name):
        body += bytes([_CODES[op]]) + struct.pack(">i", len(key)) + key
        body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return zstandard.compress(body + b"\0")


def expected(made: Synthetic) -> list[Row]:
    """The rows of view `changes` for everything a synthetic checkpoint has committed."""
    return [row for name in made.model for row in rows_of(name)]


def rows_of(name: ChangelogName) -> list[Row]:
    return [
        {
            "slot": name.version - 1,
            "operator": name.operator_id,
            "subtask": name.partition,
            "seqno": name.version,
            "position": position,
            "op": op,
            "key": key,
            "value": value,
        }
        for position, (op, key, value) in enumerate(records_of(name))
    ]


COLUMNS = ("slot", "operator", "subtask", "seqno", "position", "op", "key", "value")
