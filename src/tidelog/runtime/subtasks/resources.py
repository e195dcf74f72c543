"""What all subtasks of a process share, of one job or of several: memory, the link, and turns.

Invariant: however many jobs there are, together they keep to the one budget of memory.
"""

import fcntl
import logging
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelog.changelog.row_memory import RowMemory
from tidelog.changelog.uploader import UploadRoom
from tidelog.effects import Clock
from tidelog.errors import UnavailableError, usable_path
from tidelog.events import Event
from tidelog.ids import digest
from tidelog.materialize.materializer import Turns
from tidelog.materialize.pacing import HELD_BYTES, Uplink
from tidelog.runtime.config import JobConfig, TableKind
from tidelog.runtime.subtasks.vertices import ALL, Share
from tidelog.storage import errors
from tidelog.storage.local_files import is_running
from tidelog.table.memory import MemoryTableFactory
from tidelog.table.port import TableFactory
from tidelog.table.rocksdb_factory import RocksTableFactory
from tidelog.table.rocksdb_options import RocksDBConfig

_SPREAD: Final = (5**0.5 - 1) / 2
"""Multiples of it, without their whole parts, lie far from each other however many there are."""


@dataclass(slots=True)
class Resources:
    """The resources of one process."""

    rows: RowMemory
    link: Uplink
    room: UploadRoom
    subtasks: int
    """About how many subtasks have tables: their uploads are spread over the interval."""
    rocksdb: RocksDBConfig
    share: Share = ALL
    turns: Turns = field(default_factory=Turns)
    factories: dict[str, TableFactory] = field(default_factory=dict)
    """For each kind of table; tables of one factory share cache and write-buffer budget."""
    _ranks: int = 0
    _jobs: int = 0

    @classmethod
    def of(
        cls, config: JobConfig, clock: Clock, *, subtasks: int, tables: int, share: Share = ALL
    ) -> "Resources":
        """What `config` grants to the share of so many subtasks, with so many RocksDB tables."""
        parts = config.memory_parts
        return cls(
            rows=RowMemory(parts.rows),
            link=Uplink(clock, config.materialize.bytes_per_s, min(parts.files, HELD_BYTES)),
            room=UploadRoom(parts.upload(config.upload).limit_bytes),
            subtasks=subtasks,
            rocksdb=parts.rocksdb(config.rocksdb, tables),
            share=share,
        )

    def factory(self, kind: TableKind) -> TableFactory:
        if kind not in self.factories:
            of_rocksdb = RocksTableFactory(self.rocksdb) if kind == "rocksdb" else None
            self.factories[kind] = of_rocksdb or MemoryTableFactory()
        return self.factories[kind]

    def rank(self) -> int:
        """The turn of another subtask to upload its table, below `subtasks`."""
        rank = self._ranks * self.share.workers + self.share.worker
        self._ranks += 1
        return rank % self.subtasks

    def phase(self) -> float:
        """When the checkpoints of another job come, as a part of the interval: not all at once."""
        self._jobs += 1
        return (self._jobs - 1) * _SPREAD % 1.0


logger = logging.getLogger(__name__)

_locks: Final[dict[Path, int]] = {}
"""Descriptors of the work directories that this process has, each locked as long as it is open."""
_opening: Final = threading.Lock()


def open_work_dir(base: Path | None, store_url: str) -> Path:
    """A fresh directory; leftovers of crashed incarnations of the same store go away.

    Raises StorageError and its kinds when the disk refuses, ConfigError where there is no disk.
    """
    with usable_path(
        "option work_dir",
        expected="a directory that can be written to, or one of the system for temporary files",
        action="set it (--work-dir, JobConfig.work_dir), or TMPDIR",
        kind=UnavailableError,
    ):
        # Of one user: another one could not write to it.
        chosen = Path(tempfile.gettempdir()) / f"tidelog-{os.geteuid()}" if base is None else base
        root = chosen.absolute()  # the program may change its directory
    parent = root / digest(store_url)
    try:
        with _opening:
            parent.mkdir(parents=True, exist_ok=True)
            for leftover in filter(_is_left_over, parent.iterdir()):
                remove_work_dir(leftover)
            directory = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
            with suppress(OSError):  # a file system without locks
                _locks[directory] = _lock(directory)
            return directory
    except OSError as error:
        raise errors.from_os_error(error, f"work directory {parent}") from error


def _is_left_over(directory: Path) -> bool:
    """Whether the process is dead that a directory is named after; unsure counts as no.

    The number alone does not tell: processes of containers have the same one after each start, and
    see no others.
    """
    pid = directory.name.partition("-")[0]
    if not pid.isdigit():
        return False
    dead = not is_running(int(pid))
    if not dead and int(pid) != os.getpid():
        return False
    try:
        os.close(_lock(directory))
    except BlockingIOError:
        return False
    except OSError:
        return dead
    return True


def _lock(directory: Path) -> int:
    """A descriptor that has the directory's lock; raises BlockingIOError when another has it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def remove_work_dir(directory: Path) -> None:
    """Remove an incarnation's directory as far as possible."""
    if (descriptor := _locks.pop(directory, None)) is not None:
        os.close(descriptor)
    try:
        shutil.rmtree(directory)
    except OSError as error:
        Event.FILE_NOT_DELETED.log(logger, path=directory, error=error)
        shutil.rmtree(directory, ignore_errors=True)  # what can be removed, at least
