"""How Spark loads a version of a state store: from which snapshot, over which changelogs.

Invariants: as Spark 4.3 does it with checkpoint ids, step by step, so a way that Spark does not go
is none, even where all of its objects are there; nothing is read but the lineages that Spark reads.

A changelog carries the lineage of its version: the versions since the snapshot that was stored
last when it was written. Spark starts from the newest snapshot among these. When that cannot be
opened it repairs: it follows the lineages back by `REPLAY_LIMIT` versions, or to the first one, and
tries the other snapshots on the way, then the empty store. Where changelogs on that way were
cleaned up, only the snapshots in the version's own lineage are left.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.checkpoint.finding import UNREADABLE
from tidelog.errors import RestoreError
from tidelog.spark.format.changelog import Changelog
from tidelog.spark.format.damage import BRING_BACK

Version = tuple[int, str]
"""A version of a state store, and the checkpoint id of the attempt that counts."""

REPLAY_LIMIT: Final = 500
"""spark.sql.streaming.stateStore.autoSnapshotRepair.maxChangeFileReplay, as it is by default."""


class LoadPath(NamedTuple):
    """A way to a version: the base is a snapshot, or None for an empty store."""

    base: Version | None
    changelogs: tuple[Version, ...]


def lineage_of(changelog: Changelog) -> tuple[Version, ...]:
    """The versions before a changelog, as it names them."""
    return tuple((item.version, item.checkpoint_unique_id) for item in changelog.lineage)


@dataclass(frozen=True, slots=True)
class Loading:
    """The ways of one state store; `snapshots` are the versions that have one."""

    directory: str
    snapshots: frozenset[Version]
    lineage: Callable[[Version], Awaitable[Sequence[Version]]]
    """What a version's changelog names; raises if that is missing, damaged or unreadable."""

    async def path(self, version: Version, damaged: frozenset[Version] = frozenset()) -> LoadPath:
        """The way that Spark goes; it fails with the snapshots in `damaged`.

        Raises RestoreError when there is none, and as `lineage`.
        """
        lineage = [version]
        if version not in self.snapshots:
            lineage = sorted([*await self.lineage(version), version])
        first, *older_bases = self._bases(lineage)
        path = _path(lineage, first)
        if path is not None and first not in damaged:
            return path
        lineage = await self._whole_lineage(version, lineage)
        for base in (*self._bases(lineage), *older_bases):
            path = _path(lineage, base)
            in_reach = version[0] - (base[0] if base else 0) <= REPLAY_LIMIT
            if base != first and in_reach and base not in damaged and path is not None:
                return path
        raise self._no_path(lineage, damaged)

    def _bases(self, lineage: Sequence[Version]) -> list[Version | None]:
        """What Spark can start from, the newest first."""
        return [*(v for v in reversed(lineage) if v in self.snapshots), None]

    async def _whole_lineage(self, version: Version, lineage: list[Version]) -> list[Version]:
        """All versions that Spark can follow back; `lineage` where it cannot follow to the end."""
        oldest = max(1, version[0] - REPLAY_LIMIT)
        versions = [version]
        while versions[0][0] > oldest:
            try:
                before = [
                    v for v in await self.lineage(versions[0]) if oldest <= v[0] < versions[0][0]
                ]
            except UNREADABLE:
                return lineage
            if not before:
                return lineage
            versions = [*sorted(before), *versions]
        return versions

    def _no_path(self, lineage: Sequence[Version], damaged: frozenset[Version]) -> RestoreError:
        lost = [f"{number}_{id_}.zip" for number, id_ in lineage if (number, id_) in damaged]
        return RestoreError(
            f"state store state/{self.directory}",
            expected="a changelog that names a version with a snapshot, or all from the first on",
            found=f"versions from {lineage[0][0]} on, "
            + (f"whose snapshot {', '.join(lost)} cannot be opened" if lost else "no snapshot"),
            action=BRING_BACK,
            retry_safe=False,
        )


def _path(lineage: Sequence[Version], base: Version | None) -> LoadPath | None:
    """The way from a base to the end of a lineage; None where a version in between is missing."""
    start = base[0] if base else 0
    later = tuple(version for version in lineage if version[0] > start)
    expected = list(range(start + 1, lineage[-1][0] + 1))
    return LoadPath(base, later) if [number for number, _ in later] == expected else None
