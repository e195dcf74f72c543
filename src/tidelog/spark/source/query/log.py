"""The changelogs that can be read: those in segments and those that are files of their own.

Invariants: only changelogs that a commit names, for only the commit says which attempt of a
batch counts; a retained batch has all of them, or what is missing is an error.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.errors import ConfigError, ObjectNotFoundError, RestoreError, TidelogError
from tidelog.spark.checkpoint.checkpoint import Checkpoint, read_checkpoint, require_checkpoint
from tidelog.spark.checkpoint.liveness import Lost
from tidelog.spark.checkpoint.locate import locate
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.format.names import ChangelogName
from tidelog.spark.source.filters import Intervals
from tidelog.spark.source.query.checkpoints import damaged_commits
from tidelog.storage.port import ObjectStore

WITH_IDS: Final = 2
"""The checkpoint format whose commits name what they have committed."""


@dataclass(frozen=True, slots=True)
class Changelogs:
    """The changelogs of the retained batches, each once."""

    entries: tuple[IndexEntry, ...]
    """The changelogs that lie in segments."""
    files: tuple[tuple[ChangelogName, int], ...]
    """Real files and their lengths in bytes."""
    batches: frozenset[int]
    lost: tuple[Lost, ...]
    unreadable: Mapping[int, TidelogError]
    """Batches whose commit is damaged: nothing says which changelogs count."""

    def check_complete(self, batches: Intervals) -> None:
        """Raise RestoreError for a changelog of these batches that is lost, and the errors of
        damaged commits.
        """
        for batch, error in self.unreadable.items():
            if batch in batches:
                raise error
        for lost in (each for each in self.lost if each.batch in batches):
            raise RestoreError(
                f"changelog {lost.what}",
                expected="in a segment or a file of the checkpoint",
                found="nowhere",
                action="see what `tidelog spark doctor` says of the checkpoint, run "
                "`tidelog spark rebuild-index`, or read other batches (option slot)",
            )

    def check_chosen(self, url: str, chosen: Intervals) -> None:
        """Raise ObjectNotFoundError when none of the batches that were asked for is retained."""
        if not any(batch in chosen for batch in self.batches):
            ends = min(self.batches, default=None), max(self.batches, default=None)
            batches = "none yet" if ends[0] is None else f"{ends[0]} to {ends[1]}"
            raise ObjectNotFoundError(
                f"option slot, checkpoint {url}",
                expected=f"numbers of batches, here {batches}",
                found="none of them",
                action="choose a batch that `tidelog spark checkpoints URL` shows",
            )


async def read_changelogs(store: ObjectStore) -> Changelogs:
    """The changelogs of all retained batches.

    Raises ObjectNotFoundError where there is no checkpoint, ConfigError for one that does not name
    what it has committed, and what the store raises.
    """
    checkpoint = await read_checkpoint(store)
    require_checkpoint(checkpoint)
    _check_format(checkpoint)
    assessment = (await locate(store, checkpoint)).assessment
    retained = frozenset(checkpoint.retained)
    entries = tuple(entry for entry in assessment.live if entry.name.version - 1 in retained)
    oldest = min(checkpoint.offsets, default=0)
    return Changelogs(
        entries=entries,
        files=tuple(_files(checkpoint, {entry.name for entry in entries})),
        batches=retained,
        lost=tuple(lost for lost in assessment.lost if lost.batch in retained),
        unreadable={b: e for b, e in damaged_commits(checkpoint).items() if b >= oldest},
    )


def _check_format(checkpoint: Checkpoint) -> None:
    newest = checkpoint.newest
    if newest is not None and checkpoint.commits[newest].format < WITH_IDS:
        raise ConfigError(
            f"checkpoint {checkpoint.url}",
            expected=f"checkpoint format {WITH_IDS}, whose commits name the changelogs that count",
            found=f"format {checkpoint.commits[newest].format}",
            action='read its changes with Spark: spark.read.format("statestore")'
            '.option("readChangeFeed", "true")',
        )


def _files(
    checkpoint: Checkpoint, in_segments: Container[ChangelogName]
) -> Iterator[tuple[ChangelogName, int]]:
    """The real files that retained batches have committed."""
    retained = checkpoint.retained
    for name, size in sorted(checkpoint.changelogs.items(), key=lambda file: file[0].sort_key):
        commit = retained.get(name.version - 1)
        counts = commit and (name.operator, name.partition, name.id) in commit.named
        if counts and name not in in_segments:
            yield name, size
