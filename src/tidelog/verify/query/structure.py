"""What is wrong with a Spark checkpoint at first sight: commits, offsets, index, lost state.

Invariant: a pure function of what was read and listed; a retained batch that cannot even be looked
for is named here.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from tidelog.spark.checkpoint import COMMITS, INDEX, OFFSETS, STATE, Checkpoint
from tidelog.spark.entries import indexed
from tidelog.spark.format.names import BATCHES_PER_ROLL_UP, roll_up_name
from tidelog.spark.locate import Located
from tidelog.verify.problems import Check, Problem, problem_of
from tidelog.verify.query.facts import Homes, Listed, place_of

_REBUILD: Final = "stop the query and run `tidelog spark rebuild-index`"


def first_sight(
    checkpoint: Checkpoint,
    located: Located,
    listed: Listed,
    homes: Homes,
    chosen: Collection[int],
) -> Iterator[Problem]:
    """All problems that need no reading, of the chosen batches and of the index."""
    yield from _damaged(checkpoint, chosen)
    yield from _missing(checkpoint, listed, chosen)
    yield from _index(checkpoint, located)
    yield from _nowhere(checkpoint, homes, chosen)


def _damaged(checkpoint: Checkpoint, chosen: Collection[int]) -> Iterator[Problem]:
    for name, error in checkpoint.damaged.items():
        batch = int(name.removeprefix(COMMITS)) if name.startswith(COMMITS) else None
        # Of a commit that is no longer retained, or can be read itself, the index alone is lost.
        if batch is not None and batch in chosen and batch not in checkpoint.commits:
            yield problem_of(error, [name], unusable=(batch,))
        else:
            yield replace(problem_of(error, [name]), action=_REBUILD)


def _missing(checkpoint: Checkpoint, listed: Listed, chosen: Collection[int]) -> Iterator[Problem]:
    """Batches without a commit or offsets, and commits without ids."""
    for batch in sorted(chosen):
        commit = checkpoint.commits.get(batch)
        name = f"{COMMITS}{batch}"
        if commit is None and name not in checkpoint.damaged:
            yield _absent(name, batch)
        if commit is not None and commit.format < 2:
            yield Problem(
                Check.COMMIT,
                name,
                "checkpoint format 2, which names what counts",
                f"format {commit.format}",
                unusable=(batch,),
                action="read its state with Spark; it cannot be verified here",
            )
        if batch not in checkpoint.offsets:
            yield _absent(f"{OFFSETS}{batch}", batch)
        elif batch in listed.bad_offsets:
            yield Problem(
                Check.READABLE,
                f"{OFFSETS}{batch}",
                "a version and JSON documents, one per line",
                listed.bad_offsets[batch],
                unusable=(batch,),
            )


def _absent(name: str, batch: int) -> Problem:
    return Problem(Check.COMMIT, name, "a file", "no such object", unusable=(batch,))


def _index(checkpoint: Checkpoint, located: Located) -> Iterator[Problem]:
    """Live changelogs that no index names: found by the footers of segments, which is slow."""
    told = indexed(checkpoint)
    found: dict[str, int] = defaultdict(int)
    for entry in located.assessment.live:
        if entry.name not in told:
            found[_index_of(entry.name.version - 1, checkpoint)] += 1
    for name, count in sorted(found.items()):
        if name not in checkpoint.damaged:
            said = f"{count} that only the footers of segments name"
            yield Problem(Check.INDEX, name, "the index of its changelogs", said, action=_REBUILD)


def _index_of(batch: int, checkpoint: Checkpoint) -> str:
    """The object that should name the changelogs of a batch."""
    rolled_up = batch - batch % BATCHES_PER_ROLL_UP + BATCHES_PER_ROLL_UP - 1
    in_commit = batch in checkpoint.commits or rolled_up > (checkpoint.newest or 0)
    return f"{COMMITS}{batch}" if in_commit else INDEX + roll_up_name(batch)


def _nowhere(checkpoint: Checkpoint, homes: Homes, chosen: Collection[int]) -> Iterator[Problem]:
    for batch, commit in checkpoint.commits.items():
        for named in commit.ids if batch in chosen else ():
            if place_of(batch, named) not in homes:
                partition = f"{named.operator}/{named.partition}"
                yield Problem(
                    Check.LOST,
                    f"{STATE}{partition}/{batch + 1}_{named.id}.changelog",
                    "it in a segment, or as a file, or a snapshot instead of it",
                    "nothing",
                    (partition,),
                    unusable=(batch,),
                )
