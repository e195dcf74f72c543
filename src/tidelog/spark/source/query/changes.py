"""View `changes` of a query: the records of its changelogs, a part per segment.

Invariants: only changelogs that a commit names are read, for only the commit says which attempt of
a batch counts; a retained batch has all of them, or what is missing is an error. A part yields
every record of its changelogs once, in Spark's order; keys and values are the bytes that Spark
handed to RocksDB. Spark's files are not columnar, so their records are decoded one by one.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidelog.errors import ConfigError, ObjectNotFoundError, RestoreError
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    STATE,
    QueryCheckpoint,
    read_checkpoint,
    require_checkpoint,
    segment_object,
)
from tidelog.spark.checkpoint.inspection import stored_bytes
from tidelog.spark.checkpoint.liveness import Assessment
from tidelog.spark.checkpoint.locate import ChangelogReader, locate
from tidelog.spark.format.changelog import Record, RecordKind, read_changelog
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.source.parts import (
    ROWS,
    ReadPart,
    ReadRequest,
    ReadSession,
    constants,
    from_arrays,
)
from tidelog.spark.source.views import VIEWS
from tidelog.storage.port import ObjectStore

WITH_IDS: Final = 2
"""The checkpoint format whose commits name what they have committed."""

_OPS: Final = {kind: kind.name.lower() for kind in RecordKind}


async def plan(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """A part per segment and per real file that holds something wanted.

    Raises ObjectNotFoundError where there is no checkpoint, or no batch that was chosen,
    ConfigError for decoded columns and for a checkpoint that does not name what it has committed,
    RestoreError for a changelog that is lost, the errors of damaged commits, and what the store
    raises.
    """
    _refuse_decoding(request)
    checkpoint = await read_checkpoint(store)
    require_checkpoint(checkpoint)
    _check_format(checkpoint)
    assessment = (await locate(store, checkpoint)).assessment
    _check_chosen(checkpoint, request)
    _check_complete(checkpoint, assessment, request)
    live = [entry for entry in assessment.live if entry.name.version - 1 in checkpoint.retained]
    segments: dict[str, list[IndexEntry]] = defaultdict(list)
    for entry in live:
        if _is_wanted(entry.name, request):
            segments[entry.pieces[0].segment].append(entry)
    in_segments = {entry.name for entry in live}
    files = sorted(checkpoint.changelogs.items(), key=lambda file: file[0].sort_key)
    return [
        *(SegmentPart(name, tuple(segments[name])) for name in sorted(segments)),
        *(
            FilePart(name, size)
            for name, size in files
            if name.version - 1 in checkpoint.retained
            and checkpoint.names(name)
            and name not in in_segments
            and _is_wanted(name, request)
        ),
    ]


def _is_wanted(name: ChangelogName, request: ReadRequest) -> bool:
    row_filter = request.options.filter
    return not row_filter.narrows("key_group") and row_filter.accepts(
        checkpoint=name.version - 1,
        operator=name.operator_id,
        subtask=name.partition,
        seqno=name.version,
    )


def _refuse_decoding(request: ReadRequest) -> None:
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


def _check_format(checkpoint: QueryCheckpoint) -> None:
    newest = checkpoint.newest
    if newest is not None and checkpoint.commits[newest].format < WITH_IDS:
        raise ConfigError(
            f"checkpoint {checkpoint.url}",
            expected=f"checkpoint format {WITH_IDS}, whose commits name the changelogs that count",
            found=f"format {checkpoint.commits[newest].format}",
            action='read its changes with Spark: spark.read.format("statestore")'
            '.option("readChangeFeed", "true")',
        )


def _check_chosen(checkpoint: QueryCheckpoint, request: ReadRequest) -> None:
    """Raise ObjectNotFoundError when none of the batches that were asked for is retained."""
    chosen, retained = request.options.filter.of("checkpoint"), checkpoint.retained
    if request.options.checkpoints == "these" and not any(batch in chosen for batch in retained):
        batches = f"{min(retained)} to {max(retained)}" if retained else "none yet"
        raise ObjectNotFoundError(
            f"option checkpoint, checkpoint {checkpoint.url}",
            expected=f"numbers of batches, here {batches}",
            found="none of them",
            action="choose a batch that `tidelog spark checkpoints URL` shows",
        )


def _check_complete(
    checkpoint: QueryCheckpoint, assessment: Assessment, request: ReadRequest
) -> None:
    """Raise the error of a damaged commit of a batch that is wanted, and RestoreError for a
    commit or a changelog of one that is lost.
    """
    slots, oldest = request.options.filter.of("checkpoint"), min(checkpoint.offsets, default=0)
    for batch, error in checkpoint.damaged_commits.items():
        if batch >= oldest and batch in slots:
            raise error
    # Spark cleans up from the oldest batch on: what is missing in between is lost.
    for batch in range(min(checkpoint.retained, default=0), checkpoint.newest or 0):
        if batch in slots and batch not in checkpoint.commits:
            raise RestoreError(
                f"object {COMMITS}{batch} of {checkpoint.url}",
                expected="the commit of a batch between others, which says what of it counts",
                found="no such object",
                action="load again, as the query may clean up just now; if it stays, bring it back "
                "from a backup, or read other batches (option checkpoint)",
            )
    for lost in assessment.lost:
        if lost.batch in checkpoint.retained and lost.batch in slots:
            raise RestoreError(
                f"changelog {lost.what}",
                expected="in a segment or a file of the checkpoint",
                found="nowhere",
                action="see what `tidelog spark check` says of the checkpoint, "
                "or read other batches (option checkpoint)",
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

    def read(self, request: ReadRequest, session: ReadSession) -> Iterator[pa.RecordBatch]:
        reader = ChangelogReader(session.store)
        try:
            for entry in self.entries:
                data = session.run(reader.read(entry))
                yield from _records(request, entry.name, data, segment_object(self.segment))
        finally:
            session.run(reader.close())


@dataclass(frozen=True, slots=True)
class FilePart:
    """A changelog that Spark has written as a file."""

    name: ChangelogName
    size: int

    def read(self, request: ReadRequest, session: ReadSession) -> Iterator[pa.RecordBatch]:
        path = STATE + self.name.path
        data = session.run(session.store.get(path))
        yield from _records(request, self.name, data, path)


def _records(
    request: ReadRequest, name: ChangelogName, data: bytes, stored_in: str
) -> Iterator[pa.RecordBatch]:
    records = read_changelog(data, f"changelog {STATE}{name.path}").records
    for first in range(0, len(records), ROWS):
        yield _batch(request, name, first, records[first : first + ROWS], stored_in)


def _batch(
    request: ReadRequest, name: ChangelogName, first: int, records: Sequence[Record], stored_in: str
) -> pa.RecordBatch:
    count = len(records)
    kinds, keys, values = zip(*records, strict=True)
    arrays = {
        **constants(
            count,
            checkpoint=name.version - 1,
            operator=name.operator_id,
            subtask=name.partition,
            seqno=name.version,
            object=stored_in,
        ),
        "position": lambda: pa.array(np.arange(first, first + count)),
        "op": lambda: pa.array(map(_OPS.__getitem__, kinds), pa.string()),
        "key": lambda: pa.array(keys, pa.binary()),
        "value": lambda: pa.array(values, pa.binary()),
    }
    return from_arrays(request.columns, count, arrays)
