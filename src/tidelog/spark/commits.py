"""The file `commits/N`: Spark's two lines, and behind them the batch's index.

Invariants: Spark's lines are never changed, only what follows them; a damaged index line leaves
Spark's part usable.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from tidelog.errors import CorruptObjectError, TidelogError
from tidelog.spark.format.index import IndexDocument, read_index, write_index


class NamedId(NamedTuple):
    """A state store's checkpoint id as a commit names it."""

    operator: int
    partition: int
    id: str


@dataclass(frozen=True)
class Commit:
    """One committed batch; its state has version `batch + 1`."""

    batch: int
    spark: bytes
    """Spark's own lines."""
    format: int
    """1: without checkpoint ids, 2: with them."""
    ids: tuple[NamedId, ...]
    index: IndexDocument | None
    """None when there is no index line, or a damaged one."""
    damage: TidelogError | None
    """What is wrong with the index line."""
    size: int
    """Bytes of the whole object."""

    @cached_property
    def named(self) -> frozenset[NamedId]:
        """`ids`, to look up."""
        return frozenset(self.ids)

    @cached_property
    def places(self) -> frozenset[tuple[int, int]]:
        """Operators and partitions that had a part in the batch."""
        return frozenset((named.operator, named.partition) for named in self.ids)


def read_commit(batch: int, data: bytes, where: str) -> Commit:
    """Parse a commit; raises CorruptObjectError when Spark's own lines are damaged."""
    first, _, rest = data.partition(b"\n")
    second, _, rest = rest.partition(b"\n")
    line = rest.partition(b"\n")[0].strip()
    spark = first + b"\n" + second if second else first
    index, damage = _index(line, batch, where)
    return Commit(
        batch=batch,
        spark=spark,
        format=_format(first.strip(), where),
        ids=_ids(second, where),
        index=index,
        damage=damage,
        size=len(data),
    )


def with_index(commit: Commit, index: IndexDocument | None) -> bytes:
    """The stored bytes of a commit with this index, or of Spark's lines alone."""
    if index is None:
        return commit.spark
    return commit.spark + b"\n" + write_index(index).encode()


def _index(line: bytes, batch: int, where: str) -> tuple[IndexDocument | None, TidelogError | None]:
    if not line:
        return None, None
    try:
        index = read_index(line.decode(errors="replace"), where)
    except TidelogError as error:
        return None, error
    if (index.first, index.last) != (batch, batch):
        found = f"that of batches {index.first} to {index.last}"
        return None, _corrupt(where, f"the index of batch {batch} on line 3", found)
    return index, None


def _format(line: bytes, where: str) -> int:
    text = line.decode(errors="replace")
    if text.startswith("v") and text[1:].isdecimal():
        return int(text[1:])
    raise _corrupt(where, "a version such as v2 on line 1", repr(text[:80]))


def _ids(line: bytes, where: str) -> tuple[NamedId, ...]:
    if not line.strip():
        return ()
    try:
        metadata = msgspec.json.decode(line, type=dict[str, Any])
        operators = (metadata.get("stateUniqueIds") or {}).items()
        return tuple(
            NamedId(int(operator), partition, store_id)
            for operator, partitions in operators
            for partition, stores in enumerate(partitions)
            for store_id in stores or ()
            if isinstance(store_id, str)
        )
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as cause:
        raise _corrupt(where, "Spark's JSON on line 2", repr(line[:80])) from cause


def _corrupt(where: str, expected: str, found: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"object {where} is damaged",
        expected=expected,
        found=found,
        action="bring it back from a backup, or start the query from an earlier batch",
        retry_safe=False,
    )
