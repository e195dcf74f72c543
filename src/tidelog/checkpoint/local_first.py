"""A store behind local copies: what is written is kept, and read from there when it is intact.

Invariants: the store is written first and decides everything; a copy that is missing, damaged or
cannot be written costs a request and never an error; the copies hold at most `limit_bytes`, and go
when their objects do. The copies of an encrypted store are encrypted. Workers of one job share a
directory: what was there at their start counts for all of them, each makes copies in its part of
the room that is left, and their parent removes copies.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from tidelog.checkpoint import local_copies
from tidelog.effects import Effects
from tidelog.errors import CorruptObjectError
from tidelog.events import Event
from tidelog.ids import digest
from tidelog.storage import errors, object_names
from tidelog.storage.document import content_hash
from tidelog.storage.port import ObjectInfo, ObjectPart, ObjectStore, get_each

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class LocalFirstStore:
    """An object store with copies of its segments and table files in a local directory."""

    def __init__(
        self,
        inner: ObjectStore,
        directory: Path,
        limit_bytes: int,
        effects: Effects,
        sizes: dict[str, int],
        workers: int,
        *,
        keeps: bool = True,
    ) -> None:
        """Without `keeps` it makes no copies of what it reads."""
        self.url = inner.url
        self.request_metrics = inner.request_metrics
        self.cipher = inner.cipher
        self._metrics = local_copies.LocalCopiesStatus()
        self._inner = inner
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._effects = effects
        self._workers = workers
        self._keeps = keeps
        self._copies = sizes if workers == 1 else {}
        """Bytes of each copy that this process alone counts, by name."""
        self._shared = sizes if workers > 1 else {}
        """Bytes of each copy that was there when this worker began; all of them count it."""
        self._reserved_bytes = 0
        """Bytes of copies that are being made."""
        self._checked: dict[str, int] = {}
        """Bytes of each object whose copy was read and found intact, by name."""

    @classmethod
    async def open(
        cls, inner: ObjectStore, base: Path, limit_bytes: int, effects: Effects, workers: int = 1
    ) -> "LocalFirstStore":
        """Use the copies of this store under `base`, a directory that many stores may share.

        Each of several `workers` opens it after their parent has. Raises StorageError and its kinds
        when the directory cannot be used at all.
        """
        directory = _of_store(base, inner.url)
        try:
            if workers == 1:
                await effects.offload.run(local_copies.remove_unfinished, directory)
            sizes = await effects.offload.run(local_copies.scan, directory)
        except OSError as error:
            what = f"local recovery directory {directory}"
            raise errors.from_os_error(error, what) from error
        size = sum(sizes.values())
        Event.LOCAL_COPIES_OPENED.log(logger, directory=directory, objects=len(sizes), bytes=size)
        return cls(inner, directory, limit_bytes, effects, sizes, workers)

    @property
    def copies(self) -> frozenset[str]:
        """Names of the objects that have a copy; of a worker, that it has made one of."""
        return frozenset(self._copies)

    def has_copy(self, name: str) -> bool:
        """Whether there is a copy, of this process or of another worker."""
        return name in self._copies or name in self._shared

    def status(self) -> local_copies.LocalCopiesStatus:
        """The figures now; those of a parent and its workers add up to those of the job."""
        total = sum(self._copies.values())
        return replace(self._metrics, objects=len(self._copies), bytes=total)

    async def put(self, name: str, data: bytes) -> None:
        """Write to the store, then keep a segment's bytes."""
        await self._inner.put(name, data)
        if name.startswith(object_names.SEGMENTS):
            await self._keep_content(name, data)

    async def keep_file(self, name: str, path: Path) -> None:
        """Keep a table file that was put under this name and that nobody changes any more."""
        if self.cipher is not None:  # the file itself would be a copy that is not encrypted
            data = await self._tried(name, path.read_bytes)
            if data is not None:
                await self._keep_content(name, data)
            return
        size = await self._tried(name, lambda: path.stat().st_size)
        if size is not None:
            await self._keep(name, size, local_copies.link, path)

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range, from the copy when it is intact."""
        if not local_copies.copied(name):
            return await self._inner.get(name, start, length)
        data = await self._local(name, start, length)
        if data is not None:
            self._metrics.used += 1
            self._metrics.used_bytes += len(data)
            return data
        data = await self._inner.get(name, start, length)
        self._metrics.fetched += 1
        self._metrics.fetched_bytes += len(data)
        if self._keeps and await self._is_table_file(name, start, data):
            await self._keep_content(name, data)
        return data

    async def get_parts(
        self, parts: Sequence[ObjectPart], patience_s: float | None = None
    ) -> Sequence[bytes | None]:
        """From the copies one by one; in one call where there is none."""
        if any(self.has_copy(part.name) for part in parts):
            return await get_each(self, parts, patience_s)
        contents = await self._inner.get_parts(parts, patience_s)
        sizes = [len(content) for content in contents if content is not None]
        self._metrics.fetched += len(sizes)
        self._metrics.fetched_bytes += sum(sizes)
        return contents

    async def _is_table_file(self, name: str, start: int, data: bytes) -> bool:
        """Whether these are all bytes of a table's file, and not a part of it."""
        if start > 0 or name.startswith(object_names.SEGMENTS):
            return False
        digest = await self._effects.offload.run(content_hash, data)
        return digest == object_names.content_hash_of(name)

    async def put_again(self, name: str) -> bool:
        """Upload an object that the store has lost from its copy; False when none is intact."""
        if not local_copies.copied(name):
            return False
        try:
            data = await self._whole(name)  # also one that a worker has made
        except (ValueError, CorruptObjectError) as damage:
            Event.LOCAL_COPY_DAMAGED.log(logger, object=name, error=damage)
            self._metrics.damaged += 1
            return False
        if data is None:
            return False
        await self._inner.put(name, data)
        return True

    async def delete(self, name: str) -> None:
        """Delete in the store, then the copy."""
        await self._inner.delete(name)
        await self._remove(name)

    async def prune(self, needed: Set[str]) -> None:
        """Remove the copies of all other objects."""
        for name in self.copies - needed:
            await self._remove(name)

    async def recount(self) -> None:
        """Notice which copies the parent of the workers has removed."""
        names = [*self._copies, *self._shared]
        for name in await self._effects.offload.run(local_copies.gone, self._directory, names):
            self._forget(name)

    async def create(self, name: str, data: bytes) -> None:
        await self._inner.create(name, data)

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._inner.list(prefix, start_after)

    async def head(self, name: str) -> ObjectInfo:
        return await self._inner.head(name)

    def apart(self, effects: Effects) -> "LocalFirstStore":
        """With the copies that there are now; it makes no more."""
        inner, sizes = self._inner.apart(effects), {**self._shared, **self._copies}
        return LocalFirstStore(inner, self._directory, 0, effects, sizes, 1, keeps=False)

    async def close(self) -> None:
        await self._inner.close()

    async def _local(self, name: str, start: int, length: int | None) -> bytes | None:
        if not self.has_copy(name):
            return None
        checked = self._checked.get(name)
        if checked is not None:
            available = checked - start
            count = available if length is None else min(length, available)
            return await self._tried(
                name, local_copies.read_range, self._directory, name, start, max(0, count)
            )
        try:
            data = await self._whole(name)
        except (ValueError, CorruptObjectError) as damage:
            Event.LOCAL_COPY_DAMAGED.log(logger, object=name, error=damage)
            self._metrics.damaged += 1
            self._metrics.last_problem = f"the copy of {name}: {damage}"
            await self._remove(name)
            return None
        if data is None:
            self._forget(name)
            return None
        if self.cipher is None:
            self._checked[name] = len(data)
        return data[start:] if length is None else data[start : start + length]

    async def _whole(self, name: str) -> bytes | None:
        """The content of a copy, or None; raises ValueError or CorruptObjectError for damage."""
        if self.cipher is None:
            return await self._tried(name, local_copies.read, self._directory, name)
        sealed = await self._tried(name, local_copies.read_as_it_is, self._directory, name)
        return None if sealed is None else await self.cipher.open(name, sealed)

    async def _keep_content(self, name: str, data: bytes) -> None:
        if self.cipher is None:
            sealed = name.startswith(object_names.SEGMENTS)
            size = len(data) + (local_copies.SEAL_BYTES if sealed else 0)
            await self._keep(name, size, local_copies.write, data)
        elif self._has_room(len(data)):  # what finds no room is not encrypted for nothing
            content = await self.cipher.seal(name, data)
            await self._keep(name, len(content), local_copies.write_as_it_is, content)

    async def _keep(self, name: str, size: int, how: Callable[..., int], content: object) -> None:
        if not self._has_room(size):
            return
        token = self._effects.token()
        self._reserved_bytes += size
        try:
            disk_bytes = await self._tried(name, how, self._directory, name, content, token)
        finally:
            self._reserved_bytes -= size
        if disk_bytes is None:
            self._metrics.refused += 1
        else:
            self._metrics.kept += 1
            self._copies[name] = disk_bytes

    def _has_room(self, size: int) -> bool:
        """Whether a copy of so many bytes fits; counts and logs when it does not."""
        copy_bytes = sum(self._copies.values()) + self._reserved_bytes + size
        full = sum(self._shared.values()) + copy_bytes * self._workers > self._limit_bytes
        if full:
            problem = f"the copies reach their limit of {self._limit_bytes} bytes"
            if problem != self._metrics.last_problem:  # not for every object from now on
                Event.LOCAL_COPIES_FULL.log(logger, limit_bytes=self._limit_bytes)
            self._metrics.refused += 1
            self._metrics.last_problem = problem
        return not full

    async def _remove(self, name: str) -> None:
        if local_copies.copied(name):  # a worker may have made a copy that is not known here
            await self._tried(name, local_copies.remove, self._directory, name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        for sizes in (self._checked, self._copies, self._shared):
            sizes.pop(name, None)

    async def _tried(
        self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """What a file operation returns, or None when the disk refuses."""
        try:
            return await self._effects.offload.run(function, *args, **kwargs)
        except OSError as error:
            Event.LOCAL_COPY_FAILED.log(logger, object=name, error=error)
            self._metrics.last_problem = f"the copy of {name}: {error.strerror or error}"
            return None


def _of_store(base: Path, url: str) -> Path:
    """Where the copies of a store are, also when the program changes its directory."""
    return base.absolute() / digest(url)
