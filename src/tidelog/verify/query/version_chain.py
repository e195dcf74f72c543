"""The chain of versions that leads to the retained batches of one Spark state store.

Invariants: a version's id comes from the commit of its batch, else from the lineage that a later
changelog carries; the chain starts at the newest snapshot that the oldest retained batch can be
restored from, or at an empty store; where it cannot be followed further back, it says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.checkpoint.finding import UNREADABLE
from tidelog.errors import TidelogError
from tidelog.spark.checkpoint.loading import Version
from tidelog.spark.format.changelog import UnreadableCodecError
from tidelog.spark.format.damage import damaged
from tidelog.verify.query.files import Changelogs

ONLY_ONE: Final = "only one snapshot"
INTERRUPTED: Final = "what lies between the snapshot before and this one is not all there"


@dataclass(frozen=True, slots=True)
class VersionChain:
    """Versions in ascending order, without a hole."""

    base: int
    """The version it starts from; those in `versions` come after it."""
    start: Version | None
    """The snapshot of the base; None: the base is an empty store."""
    versions: tuple[Version, ...]
    broken: TidelogError | None = None
    """Why it starts no earlier, where that leaves the oldest batches without a base."""
    alternate: "VersionChain | str" = ONLY_ONE
    """Another way to its base, from the snapshot before or from the start; or why there is none."""

    def after(self, start: Version) -> "VersionChain":
        """The part of the chain that comes after one of its versions."""
        later = tuple(version for version in self.versions if version[0] > start[0])
        return VersionChain(start[0], start, later)


@dataclass(slots=True)
class VersionChainFinder:
    """Finds the chain to `retained_ids`, which are ids by version, from one of `snapshots`."""

    retained_ids: Mapping[int, str]
    snapshots: frozenset[Version]
    changelogs: Changelogs
    _ids: dict[int, str] = field(default_factory=dict)

    async def find(self, unusable: frozenset[Version] = frozenset()) -> VersionChain:
        """The chain; snapshots in `unusable` are no base."""
        self._ids = dict(self.retained_ids)
        chain = await self._back_from(max(self.retained_ids), min(self.retained_ids), unusable)
        if chain.start is None:
            return chain
        return replace(chain, alternate=await self._alternate_to(chain.start, unusable))

    async def _alternate_to(
        self, base: Version, unusable: frozenset[Version]
    ) -> VersionChain | str:
        """The chain that ends with a snapshot and starts from the one before, or from nothing."""
        older = [version for version, _ in self.snapshots - unusable if version < base[0]]
        from_the_start = any(version == 1 for version, _ in self.changelogs.entries)
        if not older and not from_the_start:
            return ONLY_ONE
        chain = await self._back_from(base[0], base[0] - 1, unusable)
        return chain if chain.broken is None else INTERRUPTED

    async def _back_from(
        self, newest: int, oldest: int, unusable: frozenset[Version]
    ) -> VersionChain:
        """The chain to version `newest` from a snapshot of `oldest` or before."""
        version = newest
        later: list[Version] = []
        while version > 0:
            link = version, self._ids[version]
            if version <= oldest and link in self.snapshots - unusable:
                return VersionChain(version, link, tuple(reversed(later)))
            later.append(link)
            try:
                if not await self._know_one_before(link):
                    where = f"object {self.changelogs.where(link)}"
                    expected = f"a lineage with the id of version {version - 1}, up to a snapshot"
                    raise damaged(where, expected, "one that ends before it")
            except (*UNREADABLE, UnreadableCodecError) as error:
                return VersionChain(version - 1, None, tuple(reversed(later)), error)
            version -= 1
        return VersionChain(0, None, tuple(reversed(later)))

    async def _know_one_before(self, link: Version) -> bool:
        """Whether the id of the version before this one is known, or none is needed."""
        before = link[0] - 1
        if before > 0 and before not in self._ids:
            for version, id_ in await self.changelogs.lineage(link):
                self._ids.setdefault(version, id_)
        return before == 0 or before in self._ids
