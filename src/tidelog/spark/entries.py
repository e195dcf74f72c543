"""Index entries of a checkpoint, by the name of their changelog.

Invariant: names are unique, so two entries of one name mean the same bytes.
"""

from collections.abc import Iterable, Mapping

from tidelog.spark.checkpoint import Checkpoint
from tidelog.spark.format.index import IndexEntry
from tidelog.spark.format.names import ChangelogName

Entries = Mapping[ChangelogName, IndexEntry]


def indexed(checkpoint: Checkpoint) -> dict[ChangelogName, IndexEntry]:
    """All entries of the readable index."""
    return {entry.name: entry for document in checkpoint.documents() for entry in document.entries}


def committed_only(checkpoint: Checkpoint, entries: Entries) -> dict[ChangelogName, IndexEntry]:
    """What footers hold without the attempts that lost, as far as commits can tell."""
    newest = -1 if checkpoint.newest is None else checkpoint.newest
    kept = {}
    for name, entry in entries.items():
        commit = checkpoint.commits.get(name.version - 1)
        named = commit is None or (name.operator, name.partition, name.id) in commit.named
        if named and name.version <= newest + 1:
            kept[name] = entry
    return kept


def by_segment(entries: Iterable[IndexEntry]) -> list[IndexEntry]:
    """Changelogs in the order of their segments: read so, each segment is fetched once."""
    return sorted(entries, key=lambda entry: entry.pieces[0].segment)
