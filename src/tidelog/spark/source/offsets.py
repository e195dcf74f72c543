"""How far a stream has read, as the offsets that Spark keeps in its checkpoint.

Invariants: an offset alone says which changes come next, also when the checkpoint it was taken
from is gone; equal positions are equal offsets. `of` and `document` are inverse to each other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import msgspec

from tidelog.checkpoint.manifest import Checkpoint
from tidelog.errors import ConfigError, RestoreError
from tidelog.ids import SeqNo
from tidelog.spark.checkpoint.location import Layout

Document = dict[str, Any]
"""What Spark stores as JSON."""

Place = tuple[str, int]
"""Operator and subtask."""


class _Job(msgspec.Struct, forbid_unknown_fields=True):
    slot: int
    next: dict[str, dict[int, int]]
    layout: str


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    batch: int
    layout: str


T = TypeVar("T", _Job, _Query)


@dataclass(frozen=True)
class JobOffset:
    """Everything up to the checkpoint in `slot` is read: per subtask, the changes below `next`."""

    slot: int
    next: Mapping[Place, SeqNo]

    @classmethod
    def at(cls, checkpoint: Checkpoint) -> Self:
        """All changes of a checkpoint."""
        subtasks = checkpoint.subtasks()
        return cls(checkpoint.slot, {(o.id, state.index): state.seqno for o, state in subtasks})

    @classmethod
    def of(cls, document: Document) -> Self:
        """Raises ConfigError for a document that is none."""
        stored = _read(document, _Job, "job")
        places = ((o, s, n) for o, subtasks in stored.next.items() for s, n in subtasks.items())
        return cls(stored.slot, {(o, subtask): SeqNo(n) for o, subtask, n in places})

    def document(self) -> Document:
        """What Spark stores."""
        operators: dict[str, dict[str, int]] = {}
        for (operator, subtask), seqno in sorted(self.next.items()):
            operators.setdefault(operator, {})[str(subtask)] = seqno
        return {"layout": "job", "slot": self.slot, "next": operators}


@dataclass(frozen=True)
class QueryOffset:
    """The changes of all batches up to `batch` are read; -1: of none."""

    batch: int

    @classmethod
    def of(cls, document: Document) -> Self:
        """Raises ConfigError for a document that is none."""
        return cls(_read(document, _Query, "query").batch)

    def document(self) -> Document:
        """What Spark stores."""
        return {"layout": "query", "batch": self.batch}


def layout_of(documents: Iterable[Document]) -> Layout:
    """The layout of offsets; raises ConfigError for what is none."""
    layouts = {document.get("layout") for document in documents}
    if layouts == {"job"}:
        return "job"
    if layouts == {"query"}:
        return "query"
    raise _no_offset(f"layout {', '.join(map(repr, layouts))}")


def following(before: Document, newest: Document) -> Document:
    """The newest offset, or the one before if no change lies between them: a checkpoint without
    changes is no reason for a batch.

    Raises RestoreError when the newest lies before the other, and ConfigError for what is none.
    """
    if layout_of([before, newest]) == "job":
        read, found = JobOffset.of(before), JobOffset.of(newest)
        _check_forward("slot", read.slot, found.slot)
        return before if read.next == found.next else newest
    batch, last = QueryOffset.of(before).batch, QueryOffset.of(newest).batch
    _check_forward("batch", batch, last)
    return before if batch == last else newest


def _check_forward(step: str, read: int, newest: int) -> None:
    if newest < read:
        raise RestoreError(
            "a stream over tidelog's changes",
            expected=f"{step} {read}, up to which it has read, or a newer one",
            found=f"{newest} as the newest one",
            action="find out who replaced what is stored at the location; for what is there now "
            "start a new stream (a new checkpointLocation)",
            retry_safe=False,
        )


def _read(document: Document, kind: type[T], layout: str) -> T:
    try:
        stored = msgspec.convert(document, kind, strict=False)
    except msgspec.ValidationError as cause:
        raise _no_offset(str(cause)) from cause
    if stored.layout != layout:
        raise _no_offset(f"layout {stored.layout!r}")
    return stored


def _no_offset(found: str) -> ConfigError:
    return ConfigError(
        "the offset of a stream over tidelog's changes",
        expected="one that this data source has made, of the same layout",
        found=found,
        action="start the query with the location it was started with, or with a new "
        "checkpointLocation",
    )
