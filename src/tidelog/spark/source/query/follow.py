"""The changes of a running Spark query as a stream: batch by batch.

Invariants: the changes of a batch are those of the changelogs that its commit names, so a batch of
the stream that is planned again is the same; what is gone is an error, unless the user has said
that it may be skipped.
"""

from collections.abc import Sequence, Set
from functools import partial

from tidelog.concurrency import gather_bounded
from tidelog.errors import ObjectNotFoundError, RestoreError
from tidelog.spark.checkpoint.checkpoint import COMMITS, SEGMENTS
from tidelog.spark.checkpoint.commits import Commit, read_commit
from tidelog.spark.checkpoint.reading import read_checkpoint
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.source.offsets import QueryOffset
from tidelog.spark.source.options import Starting
from tidelog.spark.source.parts import Part, Request
from tidelog.spark.source.query.changes import parts_of, refuse_decoding
from tidelog.spark.source.query.log import WITH_IDS, Changelogs, read_changelogs
from tidelog.spark.source.wanted import Intervals
from tidelog.storage.port import ObjectStore


async def initial(store: ObjectStore, starting: Starting) -> QueryOffset:
    """Where a new stream starts; a number is the batch whose state is known.

    Raises ObjectNotFoundError for a batch that is not retained.
    """
    if starting == "latest":
        return await latest(store)
    checkpoint = await read_checkpoint(store)
    retained = sorted(checkpoint.retained)
    if starting == "earliest":
        return QueryOffset(retained[0] - 1 if retained else -1)
    if starting not in retained:
        raise ObjectNotFoundError(
            f"batch {starting} of checkpoint {store.url}",
            expected=f"one of {', '.join(map(str, retained)) or 'none yet'}",
            found="no such retained batch",
            action="choose a batch that `tidelog spark checkpoints URL` shows",
        )
    return QueryOffset(starting)


async def latest(store: ObjectStore) -> QueryOffset:
    """The newest committed batch."""
    return QueryOffset(max(await _listed(store), default=-1))


async def plan(
    store: ObjectStore, request: Request, start: QueryOffset, end: QueryOffset
) -> Sequence[Part]:
    """A part per segment that has changes of the batches after `start` up to `end`.

    Raises RestoreError when changelogs are gone before they were read, CorruptObjectError and
    FormatVersionError for a commit that cannot be read, and what the store raises.
    """
    refuse_decoding(request)
    wanted = Intervals.between(start.batch + 1, end.batch)
    batches = [batch for batch in await _listed(store) if batch in wanted]
    commits = await gather_bounded(batches, partial(_commit, store))
    present = [commit for commit in commits.values() if commit is not None]
    if any(commit.format < WITH_IDS or (commit.ids and not commit.index) for commit in present):
        # Batches without the plug-in, or with a damaged index: the whole checkpoint tells.
        return parts_of(await _by_everything(store, request, wanted), request)
    _check_batches(request, wanted, {commit.batch for commit in present})
    indexes = (commit.index for commit in present if commit.index)
    entries = [entry for index in indexes for entry in index.entries]
    kept = await _stored(store, request, entries)
    return parts_of(Changelogs(tuple(kept), (), frozenset(batches)), request)


def _check_batches(request: Request, wanted: Intervals, found: Set[int]) -> None:
    """Every batch wanted must be there; as many as are found, and one, suffice to miss one."""
    for first, last in wanted.spans:
        missing = set(range(first, min(last, first + len(found)) + 1)) - found
        if missing:
            _lose(request, f"batch {min(missing)} (of {first} to {last})", "no commit of it")


async def _listed(store: ObjectStore) -> list[int]:
    names = [info.name.removeprefix(COMMITS) async for info in store.list(COMMITS)]
    return [int(name) for name in names if name.isdecimal()]


async def _commit(store: ObjectStore, batch: int) -> Commit | None:
    name = f"{COMMITS}{batch}"
    try:
        return read_commit(batch, await store.get(name), name)
    except ObjectNotFoundError:
        return None  # purged since the listing


async def _stored(
    store: ObjectStore, request: Request, entries: Sequence[IndexEntry]
) -> list[IndexEntry]:
    """The entries all of whose segments are there."""
    present = {info.name.removeprefix(SEGMENTS) async for info in store.list(SEGMENTS)}
    kept = []
    for entry in entries:
        gone = [piece.segment for piece in entry.pieces if piece.segment not in present]
        if gone:
            _lose(request, f"changelog {entry.name.path}", f"no segment {gone[0]}")
        else:
            kept.append(entry)
    return kept


async def _by_everything(store: ObjectStore, request: Request, wanted: Intervals) -> Changelogs:
    found = (await read_changelogs(store)).only(wanted)
    _check_batches(request, wanted, found.batches)
    for lost in found.lost:
        _lose(request, f"changelog {lost.what}", "nowhere")
    return found


def _lose(request: Request, what: str, found: str) -> None:
    if request.options.fail_on_data_loss:
        raise RestoreError(
            f"changes of {what}",
            expected="retained until the stream has read them",
            found=found,
            action="start a new stream (a new checkpointLocation), or skip them with option "
            "failOnDataLoss set to false; spark.sql.streaming.minBatchesToRetain of the query "
            "keeps batches for longer",
        )
