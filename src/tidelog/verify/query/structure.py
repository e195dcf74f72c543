"""What listings, commits and indexes show of a Spark checkpoint, and what is wrong with them.

Invariants: pure functions of what was read and listed; every id that a commit names has at most one
home, the state store that has a version under it; a retained batch that cannot even be looked for
is named here.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.invariants import Invariant
from tidelog.spark.checkpoint.checkpoint import (
    COMMITS,
    INDEX,
    OFFSETS,
    STATE,
    Homes,
    QueryCheckpoint,
    key_of,
)
from tidelog.spark.checkpoint.locate import Located
from tidelog.spark.checkpoint.restart import Restart
from tidelog.spark.format.damage import BRING_BACK, INDEX_LOST
from tidelog.spark.format.names import BATCHES_PER_ROLL_UP, roll_up_name
from tidelog.verify.results import NO_OBJECT, CheckName, finding_of


@dataclass(frozen=True, slots=True)
class Listed:
    """What was listed and read in addition to a `QueryCheckpoint`."""

    sizes: Mapping[str, int]
    """Bytes of every object."""
    conf: Mapping[str, Any]
    """The settings that the newest readable offsets carry."""
    bad_offsets: Mapping[int, str]
    """Batches whose offsets cannot be read, and what they hold."""
    expirable: frozenset[int]
    """The oldest batches: Spark keeps their commits a little longer than their state."""


def first_sight(
    checkpoint: QueryCheckpoint,
    located: Located,
    listed: Listed,
    homes: Homes,
    chosen: Collection[int],
) -> Iterator[Finding]:
    """All findings that need no reading, of the chosen batches and of the index."""
    yield from _damaged(checkpoint, chosen)
    yield from _missing(checkpoint, listed, chosen)
    yield from _index(checkpoint, located)
    yield from _nowhere(checkpoint, homes, chosen)


def obstacles(restart: Restart, chosen: Collection[int]) -> Iterator[Finding]:
    """What would keep Spark from a restart, as far as it concerns the chosen batches."""
    for obstacle in restart.obstacles:
        costs = [*chosen] if obstacle.batch is None else [*({obstacle.batch} & {*chosen})]
        if costs:
            yield Finding(
                CheckName.RESTART,
                obstacle.where,
                obstacle.expected,
                obstacle.found,
                unusable=tuple(costs),
                action=obstacle.action,
            )


def _damaged(checkpoint: QueryCheckpoint, chosen: Collection[int]) -> Iterator[Finding]:
    commits = {f"{COMMITS}{batch}": batch for batch in checkpoint.damaged_commits}
    for name, error in checkpoint.damaged.items():
        batch = commits.get(name)
        # Of a commit that is no longer retained, or can be read itself, the index alone is lost.
        if batch is not None and batch in chosen:
            action = None if error.action == BRING_BACK else error.action
            yield replace(finding_of(error, [name], unusable=(batch,)), action=action)
        else:
            yield replace(finding_of(error, [name]), action=INDEX_LOST)


def _missing(
    checkpoint: QueryCheckpoint, listed: Listed, chosen: Collection[int]
) -> Iterator[Finding]:
    """Batches without a commit or offsets, and commits without ids."""
    for batch in sorted(chosen):
        commit = checkpoint.commits.get(batch)
        name = f"{COMMITS}{batch}"
        if commit is None and name not in checkpoint.damaged:
            yield _absent(name, batch)
        if commit is not None and commit.format < 2:
            yield Finding(
                CheckName.COMMIT,
                name,
                "checkpoint format 2, which names what counts",
                f"format {commit.format}",
                unusable=(batch,),
                action="read its state with Spark; it cannot be verified here",
            )
        if batch not in checkpoint.offsets:
            # A start reads the offsets of the batch before as well.
            yield _absent(f"{OFFSETS}{batch}", *sorted({batch, batch + 1} & {*chosen}))
        elif batch in listed.bad_offsets:
            yield Finding(
                Invariant.READABLE,
                f"{OFFSETS}{batch}",
                "a version and JSON documents, one per line",
                listed.bad_offsets[batch],
                unusable=(batch,),
            )


def _absent(name: str, *batches: int) -> Finding:
    return Finding(CheckName.COMMIT, name, "a file", NO_OBJECT, unusable=batches)


def _index(checkpoint: QueryCheckpoint, located: Located) -> Iterator[Finding]:
    """Live changelogs that no index names: found by the footers of segments, which is slow."""
    indexed = checkpoint.indexed
    unindexed: dict[str, int] = defaultdict(int)
    for entry in located.assessment.live:
        if entry.name not in indexed:
            unindexed[_index_of(entry.name.version - 1, checkpoint)] += 1
    for name, count in sorted(unindexed.items()):
        if name not in checkpoint.damaged:
            actual = f"{count} that only the footers of segments name"
            yield Finding(
                CheckName.INDEX, name, "the index of its changelogs", actual, action=INDEX_LOST
            )


def _index_of(batch: int, checkpoint: QueryCheckpoint) -> str:
    """The object that should name the changelogs of a batch."""
    rolled_up = batch - batch % BATCHES_PER_ROLL_UP + BATCHES_PER_ROLL_UP - 1
    in_commit = batch in checkpoint.commits or rolled_up > (checkpoint.newest or 0)
    return f"{COMMITS}{batch}" if in_commit else INDEX + roll_up_name(batch)


def _nowhere(
    checkpoint: QueryCheckpoint, homes: Homes, chosen: Collection[int]
) -> Iterator[Finding]:
    for batch, commit in checkpoint.commits.items():
        for store_id in commit.ids if batch in chosen else ():
            if key_of(batch, store_id) not in homes:
                partition = f"{store_id.operator}/{store_id.partition}"
                yield Finding(
                    CheckName.LOST,
                    f"{STATE}{partition}/{batch + 1}_{store_id.id}.changelog",
                    "it in a segment, or as a file, or a snapshot instead of it",
                    "nothing",
                    (partition,),
                    unusable=(batch,),
                )
