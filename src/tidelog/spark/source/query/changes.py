"""View `changes` of a query: the records of its changelogs, a part per segment.

Invariants: a part yields every record of its changelogs once, in Spark's order; keys and values are
the bytes that Spark handed to RocksDB. Spark's files are not columnar, so their records are decoded
one by one.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.errors import ConfigError
from tidelog.spark.checkpoint.checkpoint import SEGMENTS, STATE
from tidelog.spark.checkpoint.inspection import stored_bytes
from tidelog.spark.checkpoint.locate import ChangelogReader
from tidelog.spark.format.changelog import Record, RecordKind, read_changelog
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.source import frames
from tidelog.spark.source.parts import Part, Request, Task
from tidelog.spark.source.query.log import read_changelogs
from tidelog.spark.source.views import VIEWS
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

_OPS: Final = {
    RecordKind.PUT: "put",
    RecordKind.DELETE: "delete",
    RecordKind.MERGE: "merge",
    RecordKind.DELETE_RANGE: "delete_range",
}


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """A part per segment and per real file that holds something wanted.

    Raises ConfigError for decoded columns, ObjectNotFoundError when no batch chosen is there,
    RestoreError for a changelog that is lost, the errors of damaged commits, and what the store
    raises.
    """
    _refuse_decoding(request)
    changelogs = await read_changelogs(store)
    if request.options.slots == "these":
        changelogs.check_chosen(store.url, request.options.filter.of("slot"))
    changelogs.check_complete(request.filter.of("slot"))
    segments: dict[str, list[IndexEntry]] = defaultdict(list)
    for entry in changelogs.entries:
        if _is_wanted(entry.name, request):
            segments[entry.pieces[0].segment].append(entry)
    in_segments = [SegmentPart(name, tuple(segments[name])) for name in sorted(segments)]
    files = [FilePart(name, size) for name, size in changelogs.files if _is_wanted(name, request)]
    return [*in_segments, *files]


def _is_wanted(name: ChangelogName, request: Request) -> bool:
    return not request.filter.narrows("key_group") and request.filter.accepts(
        slot=name.version - 1,
        operator=name.operator_id,
        subtask=name.partition,
        seqno=name.version,
    )


def _refuse_decoding(request: Request) -> None:
    """Raise ConfigError when columns are asked for that only tidelog's own stores can fill."""
    decoded = [column.name for column in VIEWS["changes"].decoded]
    if request.asks_for(*decoded):
        raise ConfigError(
            f"columns {', '.join(decoded)}",
            expected="a store of tidelog's own, whose manifests say how values are encoded",
            found="the checkpoint of a Spark query, whose rows Spark alone decodes",
            action="leave them out; decode with Spark: "
            'spark.read.format("statestore").option("readChangeFeed", "true")',
        )


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Changelogs that start in one segment."""

    segment: str
    entries: tuple[IndexEntry, ...]

    @property
    def size(self) -> int:
        """Bytes of the changelogs in segments."""
        return sum(map(stored_bytes, self.entries))

    def read(self, task: Task) -> Iterator["pa.RecordBatch"]:
        """The records of all these changelogs."""
        reader = ChangelogReader(task.session.store)
        try:
            for entry in self.entries:
                data = task.session.run(reader.read(entry))
                yield from _records(task.request, entry.name, data, SEGMENTS + self.segment)
        finally:
            task.session.run(reader.close())


@dataclass(frozen=True, slots=True)
class FilePart:
    """A changelog that Spark has written as a file."""

    name: ChangelogName
    size: int

    def read(self, task: Task) -> Iterator["pa.RecordBatch"]:
        """The records of the changelog."""
        path = STATE + self.name.path
        data = task.session.run(task.session.store.get(path))
        yield from _records(task.request, self.name, data, path)


def _records(
    request: Request, name: ChangelogName, data: bytes, held: str
) -> Iterator["pa.RecordBatch"]:
    records = read_changelog(data, f"changelog {STATE}{name.path}").records
    for at in range(0, len(records), frames.ROWS):
        yield _batch(request, name, at, records[at : at + frames.ROWS], held)


def _batch(
    request: Request, name: ChangelogName, at: int, records: Sequence[Record], held: str
) -> "pa.RecordBatch":
    import numpy as np  # noqa: PLC0415  (comes with Spark's side of tidelog only)
    import pyarrow as pa  # noqa: PLC0415

    count = len(records)
    kinds, keys, values = zip(*records, strict=True)
    arrays = {
        **frames.constants(
            count,
            slot=name.version - 1,
            operator=name.operator_id,
            subtask=name.partition,
            seqno=name.version,
            object=held,
        ),
        "position": lambda: pa.array(np.arange(at, at + count)),
        "op": lambda: pa.array(map(_OPS.__getitem__, kinds), pa.string()),
        "key": lambda: pa.array(keys, pa.binary()),
        "value": lambda: pa.array(values, pa.binary()),
    }
    return frames.from_arrays(request.columns, count, arrays)
