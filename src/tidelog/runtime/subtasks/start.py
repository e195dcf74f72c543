"""What one start of a job is made from, and what all its parts share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.changelog.cadence import Cadence
from tidelog.changelog.upload_config import UploadConfig
from tidelog.changelog.uploader import Uploader, UploadRoom
from tidelog.checkpoint.manifest import Author
from tidelog.checkpoint.slots import SlotLog
from tidelog.checkpoint.startup import History
from tidelog.effects import Effects
from tidelog.ids import CheckpointId
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.restore.choose import RestorePlan
from tidelog.runtime.subtasks.resources import Resources
from tidelog.runtime.subtasks.vertices import ALL, Share
from tidelog.state.registry import StateRegistry
from tidelog.storage.ledger import Ledger
from tidelog.storage.object_names import savepoint_process
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    from tidelog.checkpoint.local_first import LocalFirstStore
    from tidelog.runtime.workers.link import Exchange

_SAVEPOINT_SEGMENT_BYTES: Final = 8 << 20
"""Bytes of rows in one segment of a canonical savepoint."""
_SAVEPOINT_LIMIT_BYTES: Final = 32 << 20
"""Bytes of rows of a canonical savepoint that wait for their upload; then writers wait."""


async def open_copies(
    store: ObjectStore, config: JobConfig, effects: Effects, workers: int = 1
) -> "LocalFirstStore | None":
    """The store with local copies in front of it; None when local recovery is off.

    Raises StorageError and its kinds when the directory cannot be used at all.
    """
    if config.local_recovery is None:
        return None
    from tidelog.checkpoint.local_first import LocalFirstStore  # noqa: PLC0415  # few jobs

    limit = config.local_recovery_bytes
    return await LocalFirstStore.open(store, config.local_recovery, limit, effects, workers)


@dataclass(frozen=True)
class JobStart:
    """One start of a job; making it reads and writes nothing."""

    job: Job
    config: JobConfig
    effects: Effects
    plan: RestorePlan
    author: Author
    history: History
    store: ObjectStore
    slots: SlotLog
    ledger: Ledger
    directory: Path
    """For tables and snapshots; worthless after a crash."""
    copies: "LocalFirstStore | None" = None
    """The store, with copies on local disk; None: local recovery is off."""
    shared: Resources | None = None
    """The resources of the process, when other jobs of it have a part in them."""

    share: Share = ALL
    """The subtasks that this process has."""
    exchange: "Exchange | None" = None
    """The channels from and to other processes; None: this one has all subtasks."""
    pace: Callable[[str, Any], None] | None = None
    """Passes the cadence of checkpoints on to the processes that have the subtasks."""

    @property
    def objects(self) -> ObjectStore:
        """What log and tables are read and written through."""
        return self.copies or self.store

    @cached_property
    def resources(self) -> Resources:
        if self.shared is not None:
            return self.shared
        subtasks, tables, share = 0, 0, self.share
        for vertex in self.plan.vertices:
            subtasks += vertex.parallelism
            tables += len(share.of(vertex.subtasks)) if vertex.head.keyed else 0
        clock = self.effects.clock
        return Resources.of(self.config, clock, subtasks=subtasks, tables=tables, share=share)

    @cached_property
    def cadence(self) -> Cadence:
        return Cadence(self.effects.clock, self.pace)

    @cached_property
    def registries(self) -> dict[str, StateRegistry]:
        """The states that each vertex declares, by the vertex's name."""
        return {vertex.id: self.plan.registry_of(vertex) for vertex in self.plan.vertices}

    @cached_property
    def uploader(self) -> Uploader | None:
        """Uploads segments; None when neither changes nor in-flight data need it."""
        if self.share.worker < 0 or not (self.config.changelog or self.config.overtakes):
            return None
        process = self.author.attempt if self.exchange is None else self.effects.token()
        config = self.config.memory_parts.upload(self.config.upload)
        return self._uploader(process, self.cadence, config, self.resources.room)

    def savepoint_uploader(self, checkpoint: CheckpointId) -> Uploader:
        """Uploads the rows of a canonical savepoint, in segments of their own."""
        config = replace(
            self.config.upload,
            segment_bytes=_SAVEPOINT_SEGMENT_BYTES,
            limit_bytes=_SAVEPOINT_LIMIT_BYTES,
            max_age=1.0,
            inline_bytes=0,
        )
        process = savepoint_process(checkpoint, self.share.worker)
        # A cadence of its own: these uploads need not fit between the log's checkpoints.
        return self._uploader(process, Cadence(self.effects.clock), config)

    def _uploader(
        self, process: str, cadence: Cadence, config: UploadConfig, room: UploadRoom | None = None
    ) -> Uploader:
        return Uploader(
            store=self.objects,
            effects=self.effects,
            ledger=self.ledger,
            generation=self.author.generation,
            process=process,
            cadence=cadence,
            config=config,
            shared_room=room,
        )

    @property
    def log_uploader(self) -> Uploader | None:
        """Uploads the log; None when the changelog is off."""
        return self.uploader if self.config.changelog else None
