"""Deployment: vertices become tasks, their state restored and their channels wired."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import Author
from tidelog.events import Event
from tidelog.ids import SubtaskId
from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.channels.output import Output
from tidelog.runtime.config import JobConfig
from tidelog.runtime.graph import Job
from tidelog.runtime.in_flight.carrier import (
    InFlightCarrier,
    Types,
    in_flight_buffers,
    read_in_flight,
)
from tidelog.runtime.node import Node
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.restore.plan import RestorePlan
from tidelog.runtime.sink import SinkContext
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.runtime.subtasks.wiring import Buffers, Wiring, aligned_edges
from tidelog.runtime.supervise import run_until_done
from tidelog.runtime.tasks.alignment import Switching
from tidelog.runtime.tasks.parts import CheckpointListener, TaskParts
from tidelog.runtime.tasks.sink_output import SinkOutput
from tidelog.runtime.tasks.source_task import SourceTask
from tidelog.runtime.tasks.splits import SourceSplits
from tidelog.runtime.tasks.stream_task import StreamTask
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.watermarks import InputOrigins
from tidelog.runtime.tasks.worktime import LongCalls, WorkTime
from tidelog.runtime.user_code import blame, blamed, close_all
from tidelog.state.operator_state import OperatorStates
from tidelog.state.registry import StateRegistry

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Deployment:
    """The tasks of one incarnation of a job."""

    job: Job
    config: JobConfig
    plan: RestorePlan
    author: Author
    states: SubtaskStates
    registries: dict[str, StateRegistry]
    """The states that each vertex has declared, by the vertex's name."""
    listener: CheckpointListener
    tasks: list[Task]
    """The tasks built so far, in the order of the job."""
    uploader: Uploader | None
    """Carries in-flight data; None: barriers never overtake."""
    retained: tuple[bytes, ...] | None
    """The transactions that retained checkpoints name, as in `SinkContext`."""
    record_types: Types
    """What in-flight data may consist of."""
    _long_calls: LongCalls = field(default_factory=LongCalls)
    _opened: dict[SubtaskId, list[Callable[[], None]]] = field(default_factory=dict)
    """How to close what was opened for each task."""

    @property
    def aligned_edges(self) -> tuple[str, ...]:
        """Edges on which barriers never overtake, though they do on others."""
        return aligned_edges(self.plan.vertices) if self.uploader is not None else ()

    @property
    def dropped_buffers(self) -> int:
        """Buffers in flight that the restore drops, as the configuration says."""
        restored = self.plan.checkpoint if self.config.drop_in_flight else None
        return in_flight_buffers(restored) if restored is not None else 0

    async def build(self, prove_newest: Callable[[], Awaitable[None]]) -> None:
        """Restore all subtasks, let sinks recover, and wire the tasks.

        `prove_newest` raises FencedError when a newer generation has started. It is asked before
        anything outside of the store is touched: user functions, and what sinks have staged.
        """
        await self.states.restore()
        await prove_newest()
        await self._migrate()
        self._describe()
        keys = {name: registry.keys for name, registry in self.registries.items()}
        vertices = self.plan.vertices
        wiring = Wiring(vertices, self.config.key_groups, _buffers(self.config, vertices), keys)
        for vertex in vertices:
            source = vertex.head.source
            splits = SourceSplits(source, self.states.effects) if source else None
            if source is not None and source.splits_grow:
                self._warn_of_finished(vertex)
            for subtask in vertex.subtasks:
                self.tasks.append(await self._task(subtask, vertex, wiring, splits))
        for registry in self.registries.values():
            for name in registry.check_renamed(self.config.allow_dropped_state):
                Event.STATE_UNDECLARED.log(logger, state=name, operator=registry.operator)
        await self._recover_in_flight(wiring)

    async def _migrate(self) -> None:
        """Change the keys and values that the job wants otherwise; they are in no log."""
        for vertex in self.plan.vertices:
            if vertex.id in self.plan.migrated:
                tables = [self.states.loaded[subtask].table for subtask in vertex.subtasks]
                from tidelog.runtime.restore.migration import Migration  # noqa: PLC0415  # rare

                registry = self.registries[vertex.id]
                migration = Migration(registry, self.config.key_groups, tables)
                await self.states.effects.offload.run(migration.run)

    def _describe(self) -> None:
        """Tell the ledger which files the restored materializations consist of."""
        if self.plan.resumption.origin is None:
            for subtask in self.states.loaded.values():
                for name, descriptor in subtask.descriptors.items():
                    self.states.ledger.describe(name, descriptor.shared_bytes)

    def live_objects(self) -> set[str]:
        """Stored objects that running subtasks refer to."""
        subtasks = self.states.subtasks
        parts = [task.parts for task in self.tasks if not subtasks[task.id].released]
        held = [p.snapshotter.objects() | p.canonical.objects() for p in parts]
        held += [p.carrier.objects() for p in parts if p.carrier is not None]
        return set().union(*held)

    async def live(self, task: Task) -> None:
        """A task's whole life: its loop, beside it its materializer, and what it leaves behind."""
        materializer = self.states.subtasks[task.id].materializer
        if materializer is None:
            await task.run()
        else:
            await run_until_done([task.run()], [materializer.run()])
        self._close_task(task.id)
        task.parts.backend.release()
        await self.states.release(task.id)

    async def close(self, *, quietly: bool) -> None:
        """Close operators, sinks and tables, all of them even when one fails.

        `quietly` when there is an error already that says more than that of closing.
        """
        for subtask in self.states.subtasks.values():
            subtask.backend.release()  # other jobs of the process may use the memory
        job, tables = f"job {self.job.name!r}", [t.close for t in self.states.open_tables]
        try:
            # Other jobs of the process go on while the disk is waited for.
            await self.states.effects.offload.run_to_end(close_all, job, tables, quietly=quietly)
        finally:
            closings = [partial(self._close_task, task) for task in self._opened]
            close_all(job, closings, quietly=quietly)

    def _close_task(self, task: SubtaskId) -> None:
        close_all(str(task), self._opened.pop(task, ()), quietly=False)

    def _closes(self, task: SubtaskId, close: Callable[[], None]) -> None:
        """Something was opened for a task."""
        self._opened.setdefault(task, []).append(close)

    def _warn_of_finished(self, vertex: Vertex) -> None:
        """A source that follows now, and read to the end in an earlier run."""
        finished = sum(subtask in self.plan.finished for subtask in vertex.subtasks)
        if finished:
            Event.SOURCE_FINISHED_BEFORE.log(
                logger, source=vertex.id, finished=finished, subtasks=vertex.parallelism
            )

    async def _task(
        self, subtask: SubtaskId, vertex: Vertex, wiring: Wiring, splits: SourceSplits | None
    ) -> Task:
        output = await self._output(subtask, vertex, wiring)
        number, source = subtask.subtask, vertex.head.source
        if subtask in self.plan.finished:
            from tidelog.runtime.tasks.finished_task import FinishedTask  # noqa: PLC0415  # rare

            gate = wiring.gates[vertex.id][number] if vertex.inputs else None
            return FinishedTask(self._finished_parts(subtask, vertex, output), gate)
        parts = self._parts(subtask, vertex, output)
        if vertex.head.caller is not None:
            from tidelog.runtime.tasks.caller_task import CallerTask  # noqa: PLC0415  # no `run`

            return CallerTask(parts, vertex.head.caller)
        if source is not None and splits is not None:
            return SourceTask(parts, source, splits)
        origins = InputOrigins(
            wiring.carrying(vertex, number),
            wiring.telling(vertex),
            self.states.effects.clock.monotonic(),
        )
        return StreamTask(
            parts,
            wiring.gates[vertex.id][number],
            wiring.channels(vertex, number),
            exactly_once=self.config.mode == "exactly-once",
            stay_aligned=wiring.stay_aligned(vertex),
            origins=origins,
        )

    def _finished_parts(
        self, subtask: SubtaskId, vertex: Vertex, output: Output | SinkOutput
    ) -> TaskParts:
        built = self.states.build(subtask, vertex, self.registries[vertex.id])
        return TaskParts(
            id=subtask,
            chain=OperatorChain([], output.work),
            backend=built.backend,
            snapshotter=built.snapshotter,
            canonical=built.canonical,
            output=output,
            uploader=None,
            effects=self.states.effects,
            listener=self.listener,
        )

    def _parts(self, subtask: SubtaskId, vertex: Vertex, output: Output | SinkOutput) -> TaskParts:
        effects, state = self.states.effects, self.plan.state_of(subtask)
        built = self.states.build(subtask, vertex, self.registries[vertex.id])
        operators = [_made(node) for node in vertex.nodes if node.operator]
        chain = OperatorChain(operators, output.work, output.limit)
        operator_states = OperatorStates(state.operator_state if state else ())
        self._closes(subtask, chain.close)
        chain.open(
            OperatorContext(
                vertex.id,
                subtask.subtask,
                vertex.parallelism,
                effects.clock,
                built.backend,
                operator_states,
            )
        )
        carrier, switching = None, None
        if self.uploader is not None:
            switching = Switching(self.config.unaligned.timeout)
            carrier = InFlightCarrier(subtask, self.uploader, effects, self.record_types)
        return TaskParts(
            id=subtask,
            chain=chain,
            backend=built.backend,
            snapshotter=built.snapshotter,
            canonical=built.canonical,
            output=output,
            uploader=self.states.uploader,
            effects=effects,
            listener=self.listener,
            restored=state,
            operator_states=operator_states,
            switching=switching,
            carrier=carrier,
        )

    async def _output(
        self, subtask: SubtaskId, vertex: Vertex, wiring: Wiring
    ) -> Output | SinkOutput:
        cadence = self.states.cadence
        effects = self.states.effects
        work = WorkTime(
            effects.clock,
            self._long_calls,
            urgent=lambda: cadence.under_way,
            threads_work=lambda: effects.offload.working,
        )
        last, offload = vertex.nodes[-1], self.states.effects.offload
        sink = last.sink
        if sink is None:
            return wiring.output(vertex, subtask.subtask, work)
        context = SinkContext(
            self.job.name,
            last.id,
            subtask.subtask,
            vertex.parallelism,
            self.author.generation,
            self.author.attempt,
            self.retained,
        )

        def opened() -> SinkOutput:
            output = SinkOutput(last.id, sink.open(context), offload, work, wiring.limit)
            self._closes(subtask, output.close)
            return output

        output = await offload.run_to_end(blamed(last.id, opened))
        state = self.plan.state_of(subtask)
        await output.recover(state.transactions if state else ())
        return output

    async def _recover_in_flight(self, wiring: Wiring) -> None:
        """Put the records that barriers had overtaken back into their channels."""
        restored = self.plan.checkpoint
        if restored is None:
            return
        if self.config.drop_in_flight:
            Event.IN_FLIGHT_DROPPED.log(logger, buffers=self.dropped_buffers)
            return
        from tidelog.runtime.in_flight.redistribution import redistribute  # noqa: PLC0415

        store = self.plan.resumption.origin or self.states.store
        offload = self.states.effects.offload
        data = await read_in_flight(store, offload, restored, self.record_types)
        subtasks = {operator.id: len(operator.subtasks) for operator in restored.operators}
        recovered = redistribute(data, self.plan.vertices, wiring, subtasks)
        for (vertex, subtask, channel), messages in recovered.items():
            gate = wiring.gates[vertex][subtask]
            gate.channels[channel].recover(messages)
            gate.recovered()


def _buffers(config: JobConfig, vertices: list[Vertex]) -> Buffers:
    """How many buffers the channels hold, and how large each may be."""
    buffers = Buffers(config.channel_buffers, config.unaligned.overdraft)
    size = config.memory_parts.buffer_bytes(config.buffer_bytes, buffers.count(vertices))
    return msgspec.structs.replace(buffers, limit=BufferLimit(size, config.buffer_records))


def _made(node: Node) -> tuple[str, Operator]:
    """A node's operator by its id; making it can run a user's constructor."""
    assert node.operator is not None
    with blame(node.id):
        return node.id, node.operator()
