"""A store that keeps what tells the story of a run: every manifest, descriptor and log segment.

Invariant: the job cannot tell: objects are dropped as it asks, but those of the log stay readable
for whoever looks at the store after the run. What was deleted, and when, is noted.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from tidelog.bench.embedded.meter import CLOCK
from tidelog.storage import paths
from tidelog.storage.port import ObjectInfo, ObjectStore
from tidelog.storage.raising import object_not_found

_KEPT: Final = (paths.CHECKPOINTS, paths.SEGMENTS, paths.MATERIALIZATIONS)


@dataclass(frozen=True)
class Deletion:
    """An object that the job did not need any more, by the wall clock of the process."""

    name: str
    at: float


class Archive:
    """Any store; deleted objects of the log are kept in it, table files are not."""

    def __init__(self, inner: ObjectStore) -> None:
        self.url = inner.url
        self.inner = inner
        """Everything that was kept."""
        self.deletions: list[Deletion] = []
        self._gone: set[str] = set()

    async def put(self, name: str, data: bytes) -> None:
        """Write or overwrite."""
        await self.inner.put(name, data)
        self._gone.discard(name)

    async def create(self, name: str, data: bytes) -> None:
        """Write if absent; a name that was deleted stays taken, as no job uses one twice."""
        await self.inner.create(name, data)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range."""
        self._check(name)
        return await self.inner.get(name, start, length)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """List names that were not deleted."""
        async for info in self.inner.list(prefix, start_after):
            if info.name not in self._gone:
                yield info

    async def head(self, name: str) -> ObjectInfo:
        """Size of a name."""
        self._check(name)
        return await self.inner.head(name)

    async def delete(self, name: str) -> None:
        """Forget a name, and remove it unless it is kept."""
        if not name.startswith(_KEPT):
            await self.inner.delete(name)
        self._gone.add(name)
        self.deletions.append(Deletion(name, CLOCK.monotonic()))

    async def close(self) -> None:
        """Close the inner store."""
        await self.inner.close()

    def _check(self, name: str) -> None:
        if name in self._gone:
            raise object_not_found(self.url, name)
