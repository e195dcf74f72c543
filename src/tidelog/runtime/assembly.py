"""Assembly: the parts of one incarnation, made and connected.

Invariant: nothing runs yet, and nothing of the store was read or written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.checkpoint.collector import Collector
from tidelog.checkpoint.coordinator import Coordinator
from tidelog.checkpoint.manifest import Author, Checkpoint, SubtaskState
from tidelog.checkpoint.slots import SlotLog
from tidelog.dstl.cadence import Cadence
from tidelog.dstl.uploader import Uploader
from tidelog.effects import Effects
from tidelog.ids import CheckpointId, Slot
from tidelog.runtime.checkpointing import CheckpointDriver
from tidelog.runtime.config import JobConfig
from tidelog.runtime.deploy import Deployment
from tidelog.runtime.finished import FinishedSubtasks, finished_subtasks, predecessors
from tidelog.runtime.graph import Job, Vertex
from tidelog.runtime.in_flight.codec import RecordTypes
from tidelog.runtime.matching import match_states
from tidelog.runtime.restore_from import Resumption
from tidelog.runtime.subtask_state import SubtaskStates
from tidelog.runtime.tasks.parts import TaskId
from tidelog.state.progress import RestoreProgress
from tidelog.storage.ledger import Ledger
from tidelog.storage.port import ObjectStore


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What an incarnation is made from."""

    job: Job
    vertices: list[Vertex]
    config: JobConfig
    effects: Effects
    store: ObjectStore
    """Where log and tables are read and written."""
    slots: SlotLog
    author: Author
    ledger: Ledger
    directory: Path
    next_id: CheckpointId
    restored: Checkpoint | None
    resumption: Resumption


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of an incarnation."""

    uploader: Uploader | None
    """None: neither changes nor in-flight data are uploaded."""
    progress: RestoreProgress
    collector: Collector
    driver: CheckpointDriver
    deployment: Deployment


def assemble(plan: Blueprint) -> Assembly:
    """Make all parts; raises RestoreError when job and checkpoint do not fit."""
    config, effects, cadence = plan.config, plan.effects, Cadence(plan.effects.clock)
    uploader = _uploader(plan, cadence) if config.changelog or config.overtakes else None
    progress = RestoreProgress.of(effects.clock, _states(plan.restored))
    stored = match_states(plan.vertices, plan.restored, config)
    exited = finished_subtasks(plan.vertices, stored, shared=not plan.resumption.detached)
    collector = Collector(plan.store, plan.slots, plan.ledger, config.retain, set)
    driver = _driver(plan, collector, cadence, exited)
    states = SubtaskStates(
        config=config,
        store=plan.store,
        effects=effects,
        generation=plan.author.generation,
        ledger=plan.ledger,
        uploader=uploader if config.changelog else None,
        cadence=cadence,
        directory=plan.directory,
        progress=progress,
        origin=plan.resumption.origin,
        detached=plan.resumption.detached,
        finished=frozenset(exited),
    )
    deployment = Deployment(
        plan.job.name,
        plan.author.generation,
        plan.author.attempt,
        states,
        driver,
        uploader=uploader if config.overtakes else None,
        record_types=RecordTypes(plan.job.record_types),
    )
    # The two know each other: tasks report to the driver, which stores what they are made of.
    driver.operators = lambda states: deployment.operator_states(plan.vertices, states)
    collector.live = deployment.live_objects
    return Assembly(uploader, progress, collector, driver, deployment)


def _uploader(plan: Blueprint, cadence: Cadence) -> Uploader:
    return Uploader(
        store=plan.store,
        effects=plan.effects,
        ledger=plan.ledger,
        generation=plan.author.generation,
        process=plan.author.attempt,
        cadence=cadence,
        config=plan.config.upload,
    )


def _driver(
    plan: Blueprint, collector: Collector, cadence: Cadence, exited: Mapping[TaskId, SubtaskState]
) -> CheckpointDriver:
    config, now = plan.config, plan.effects.clock.monotonic()
    finished = FinishedSubtasks(plan.vertices)
    finished.add(exited)
    return CheckpointDriver(
        coordinator=Coordinator(
            predecessors(plan.vertices), config.schedule, plan.next_id, now, exited
        ),
        effects=plan.effects,
        slots=plan.slots,
        author=plan.author,
        job=plan.job.name,
        next_slot=Slot(plan.author.generation + 1),
        collector=collector,
        cadence=cadence,
        operators=lambda states: (),
        finished_subtasks=finished,
        order=config.unaligned.order if config.overtakes else "aligned",
        previous=None if plan.resumption.origin is not None else plan.restored,
    )


def _states(checkpoint: Checkpoint | None) -> list[SubtaskState]:
    """What a restore loads: of finished subtasks nothing."""
    subtasks = checkpoint.subtasks() if checkpoint is not None else ()
    return [state for _, state in subtasks if not state.finished]
