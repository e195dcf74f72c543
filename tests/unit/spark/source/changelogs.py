"""Synthetic checkpoints whose changelogs are real: bytes as Spark writes them, records known."""

from typing import Any

from tests.unit.spark.synthetic import (
    Lineage,
    Synthetic,
    changelog,
    delete,
    delete_range,
    merge,
    put,
)
from tidelog.spark.format.changelog import Record
from tidelog.spark.format.names import ChangelogName

Row = dict[str, Any]


def records_of(name: ChangelogName) -> list[Record]:
    """What a changelog holds, different for every name."""
    own, puts = f"{name.path}|".encode(), range(3 + name.version % 4)
    return [
        *(put(own + bytes([number]), own * number) for number in puts),
        delete(own + b"gone"),
        merge(own + b"list", b"one more"),
        delete_range(own + b"from", own + b"to"),
    ]


def content_of(name: ChangelogName, lineage: Lineage) -> bytes:
    return changelog(records_of(name), lineage)


def expected(made: Synthetic) -> list[Row]:
    """The rows of view `changes` for everything a synthetic checkpoint has committed."""
    return [row for name in made.model for row in rows_of(name)]


def rows_of(name: ChangelogName) -> list[Row]:
    return [
        {
            "checkpoint": name.version - 1,
            "operator": name.operator_id,
            "subtask": name.partition,
            "seqno": name.version,
            "position": position,
            "op": kind.name.lower(),
            "key": key,
            "value": value,
        }
        for position, (kind, key, value) in enumerate(records_of(name))
    ]


COLUMNS = ("checkpoint", "operator", "subtask", "seqno", "position", "op", "key", "value")
