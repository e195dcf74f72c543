"""What a start restores: the newest checkpoint of its own store, or one that the user chose.

Invariant: a checkpoint of another store counts only as long as the job's own store has none, so the
same command started again resumes.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tidelog.checkpoint.finished import without_transactions
from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState, is_canonical
from tidelog.checkpoint.slots import SlotLog, after_all
from tidelog.checkpoint.startup import History, resumable
from tidelog.errors import ConfigError, RestoreError
from tidelog.events import Event
from tidelog.ids import Slot, SubtaskId
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.state.registry import Rehearsal, StateMigration, StateRegistry, known_keys
from tidelog.storage.port import ObjectStore

if TYPE_CHECKING:
    from tidelog.catalog.locate import CheckpointName

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreFrom:
    """A checkpoint to start from.

    With `claim` the checkpoint belongs to the job, which shares its files and drops it like its own
    ones. Otherwise it is never touched, and once the job has completed a checkpoint it needs none
    of those files.
    """

    checkpoint: "CheckpointName"
    store: ObjectStore | None = None
    """Another store than the job's own; it stays open as long as the job restores."""
    claim: bool = False
    keep_output: bool = False
    """With another store: the job goes on with the output of the job that wrote the checkpoint, and
    commits what that job had pre-committed; sinks then refuse that one. Otherwise it writes an
    output of its own, which begins after the checkpoint.
    """

    def __post_init__(self) -> None:
        """Raises ConfigError for a claim to what lies in another store."""
        if self.claim and self.store is not None:
            raise ConfigError(
                "option --claim",
                expected="a checkpoint in the job's own store",
                found=f"one in {self.store.url}",
                action="use --no-claim, and drop it with `tidelog checkpoints drop` when the job "
                "has completed a checkpoint",
            )


class Resumption(msgspec.Struct, frozen=True):
    """What a start resumes from, and how."""

    checkpoint: Checkpoint | None = None
    """None: the job begins."""
    origin: ObjectStore | None = None
    """The store that has the checkpoint, when it is not the job's own."""
    detached: bool = False
    """The job shares no objects with the checkpoint, so its own first one is whole."""
    chosen_slot: Slot | None = None
    """The one that the user chose in the job's own store; None: the newest."""
    claimed_slot: Slot | None = None
    """The savepoint that belongs to the job from now on."""
    first: Slot = Slot(0)
    """The lowest slot that the start may take: sinks have seen lower ones, of the origin."""
    after_end: bool = False
    """The job had ended with the checkpoint, and goes on from its state before the end."""

    def going_on(self) -> "Resumption":
        """The same before the end, where the checkpoint is the last of a job that can go on."""
        checkpoint = self.checkpoint
        if checkpoint is None or not checkpoint.final or not checkpoint.before_end:
            return self
        from tidelog.runtime.restore.after_end import before_end  # noqa: PLC0415  # few starts

        return msgspec.structs.replace(self, checkpoint=before_end(checkpoint), after_end=True)


async def choose(
    slots: SlotLog, store: ObjectStore, restore_from: RestoreFrom | None, slot: Slot | None
) -> Resumption:
    """What a start would resume from, before it fences anything; raises as `resumable`.

    A checkpoint with which the job has ended is as it is stored: see `Resumption.going_on`.
    """
    if restore_from is None:
        return _of_own_store(await resumable(slots, slot), slot)
    from tidelog.catalog.locate import find  # noqa: PLC0415  # only for a chosen checkpoint

    if restore_from.store is None:
        checkpoint = await find(store, restore_from.checkpoint)
        detached = not restore_from.claim or is_canonical(checkpoint)
        claimed_slot = checkpoint.slot if restore_from.claim else None
        return Resumption(checkpoint, None, detached, checkpoint.slot, claimed_slot)
    newest = await resumable(slots, None)
    if newest is not None:
        return _of_own_store(newest)
    checkpoint = await find(restore_from.store, restore_from.checkpoint)
    first = Slot(0)
    if restore_from.keep_output:
        first = after_all(checkpoint.slot)
    else:
        count = 0
        for _, state in checkpoint.subtasks():
            count += len(state.transactions)
        if count:
            url = restore_from.store.url
            Event.TRANSACTIONS_LEFT.log(
                logger, transactions=count, checkpoint=checkpoint.slot, store=url
            )
        checkpoint = without_transactions(checkpoint)
    return Resumption(checkpoint, restore_from.store, detached=True, first=first)


def check_name(job: str, resumption: Resumption) -> None:
    """Raises RestoreError for another job's store: equal names would be taken for equal state."""
    checkpoint = resumption.checkpoint
    if checkpoint is not None and resumption.origin is None and checkpoint.job != job:
        raise RestoreError(
            f"job {job!r}",
            expected=f"job {checkpoint.job!r}, whose checkpoints the store has",
            found="a job of another name",
            action="choose another store, or give the job its name back; to take over that job's "
            "state under another name, start with --from URL@latest on an empty store",
        )


def confirm(resumption: Resumption, history: History) -> Resumption:
    """What to resume from after the take-over: `resumption`, unless another start went on since.

    Raises as `History.resume_from`.
    """
    if resumption.origin is not None:
        return _of_own_store(history.resume_from(None)) if history.checkpoints else resumption
    checkpoint, before = history.resume_from(resumption.chosen_slot), resumption.checkpoint
    if checkpoint is None or before is None:
        same = checkpoint is before
    else:
        same = (checkpoint.slot, checkpoint.author) == (before.slot, before.author)
    return resumption if same else _of_own_store(checkpoint)


def _of_own_store(checkpoint: Checkpoint | None, slot: Slot | None = None) -> Resumption:
    detached = checkpoint is not None and is_canonical(checkpoint)
    return Resumption(checkpoint, detached=detached, chosen_slot=slot)


class RestorePlan(msgspec.Struct, frozen=True):
    """How the job goes on from a checkpoint, or begins."""

    resumption: Resumption
    vertices: list[Vertex]
    operators: Mapping[str, OperatorState] = msgspec.field(default_factory=dict)
    """Stored operators by id; once all is assigned by vertex, as the job's subtasks load them."""
    migrated: frozenset[str] = frozenset()
    """Vertices whose restored keys or values are changed: their first checkpoint is whole."""
    migrations: Mapping[str, Sequence[StateMigration]] = msgspec.field(default_factory=dict)
    """States that a processor migrates, by vertex."""
    finished: Mapping[SubtaskId, SubtaskState] = msgspec.field(default_factory=dict)
    """Subtasks that are not to run again."""
    dropped: tuple[str, ...] = ()
    """State that is not restored because its operator is gone, as reports show it."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.resumption.checkpoint

    @property
    def before_end(self) -> tuple[OperatorState, ...]:
        """The state before the end, where the job had reached it and goes on ending; empty: it had
        not, or shares no objects with the checkpoint.
        """
        shares = self.checkpoint is not None and not self.resumption.detached
        return self.checkpoint.before_end if self.checkpoint is not None and shares else ()

    def state_of(self, subtask: SubtaskId) -> SubtaskState | None:
        """What is stored for a subtask; None: nothing."""
        operator = self.operators.get(subtask.operator)
        return operator.subtasks[subtask.subtask] if operator is not None else None

    def loaded_by(self, subtask: SubtaskId) -> SubtaskState | None:
        """What a subtask loads; None: nothing, as it begins or has finished."""
        return None if subtask in self.finished else self.state_of(subtask)

    def registry_of(self, vertex: Vertex) -> StateRegistry:
        """A new registry of a vertex's states: the stored ones, as they are after a migration."""
        operator, head = self.operators.get(vertex.id), vertex.head
        keys = known_keys(vertex.id, operator, head.key_types)
        states = {info.name: info for info in operator.states} if operator else {}
        for migration in self.migrations.get(vertex.id, ()):
            states[migration.declared.name] = migration.declared
        return StateRegistry(vertex.id, states.values(), keys, head.value_types)

    def rehearsal_of(self, vertex: Vertex, operator: OperatorState) -> Rehearsal:
        """A registry for an operator that is only opened to learn what it registers."""
        keys = known_keys(vertex.id, operator, vertex.head.key_types)
        return Rehearsal(vertex.id, operator.states, keys, vertex.head.value_types)
