"""Deployment: vertices become tasks, their state restored and their channels wired."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from tidelog.checkpoint.manifest import Checkpoint, OperatorState, SubtaskState
from tidelog.dstl.uploader import Uploader
from tidelog.ids import Generation
from tidelog.runtime.blame import blame
from tidelog.runtime.channels.output import Output
from tidelog.runtime.channels.wiring import Buffers, Wiring, aligned_edges
from tidelog.runtime.finished import with_chain
from tidelog.runtime.graph import Node, Vertex
from tidelog.runtime.in_flight.carrier import InFlightCarrier
from tidelog.runtime.in_flight.codec import RecordTypes
from tidelog.runtime.in_flight.recovery import in_flight_size, read_in_flight
from tidelog.runtime.in_flight.redistribution import redistribute
from tidelog.runtime.matching import match_states
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.sink import Sink, SinkContext
from tidelog.runtime.subtask_state import SubtaskStates
from tidelog.runtime.supervise import run_while
from tidelog.runtime.tasks.alignment import Switching
from tidelog.runtime.tasks.finished_task import FinishedTask
from tidelog.runtime.tasks.parts import CheckpointListener, TaskId, TaskParts
from tidelog.runtime.tasks.sink_output import SinkOutput
from tidelog.runtime.tasks.source_task import SourceTask, SplitEnumerator
from tidelog.runtime.tasks.stream_task import StreamTask
from tidelog.runtime.tasks.task import Task
from tidelog.runtime.tasks.worktime import WorkTime
from tidelog.state.operator_state import OperatorStates
from tidelog.state.registry import StateRegistry
from tidelog.state.restore import RestoredSubtask


@dataclass(slots=True)
class Deployment:
    """The tasks of one incarnation of a job."""

    job: str
    generation: Generation
    attempt: str
    states: SubtaskStates
    listener: CheckpointListener
    tasks: list[Task] = field(default_factory=list)
    registries: dict[str, StateRegistry] = field(default_factory=dict)
    uploader: Uploader | None = None
    """Carries in-flight data; None: barriers never overtake."""
    record_types: RecordTypes = field(default_factory=RecordTypes)
    """What in-flight data may consist of."""
    aligned_edges: tuple[str, ...] = ()
    """Edges on which barriers never overtake, though they do on others."""
    dropped_buffers: int = 0
    """Buffers in flight that the restore was told to drop."""
    _released: set[TaskId] = field(default_factory=set)
    """Exited, with everything they held closed."""

    async def build(self, vertices: list[Vertex], restored: Checkpoint | None) -> None:
        """Restore all subtasks, let sinks recover, and wire the tasks."""
        config = self.states.config
        stored = match_states(vertices, restored, config)
        loaded = await self.states.restore(vertices, stored)
        if self.states.origin is None:
            self._describe(loaded)
        buffers = Buffers(config.channel_buffers, config.unaligned.overdraft)
        self.aligned_edges = aligned_edges(vertices) if self.uploader is not None else ()
        wiring = Wiring(vertices, config.key_groups, buffers)
        total = sum(vertex.parallelism for vertex in vertices)
        for vertex in vertices:
            operator = stored.get(vertex.id)
            infos = operator.states if operator else ()
            self.registries[vertex.id] = StateRegistry(vertex.id, infos)
            source = vertex.head.source
            enumerator = SplitEnumerator(source, self.states.effects) if source else None
            for subtask in range(vertex.parallelism):
                task_id = TaskId(vertex.id, subtask)
                state = operator.subtasks[subtask] if operator else None
                output = await self._output(vertex, subtask, wiring, state)
                if task_id in self.states.finished:
                    self.tasks.append(self._finished(task_id, vertex, output, wiring))
                    continue
                parts = self._parts(task_id, vertex, output, state, loaded.get(task_id), total)
                if source is not None and enumerator is not None:
                    task: Task = SourceTask(parts, source, enumerator)
                else:
                    task = StreamTask(
                        parts,
                        wiring.gates[vertex.id][subtask],
                        wiring.channels(vertex, subtask),
                        exactly_once=config.mode == "exactly-once",
                        stay_aligned=wiring.stay_aligned(vertex),
                    )
                self.tasks.append(task)
        if restored is not None:
            await self._recover_in_flight(restored, vertices, wiring)

    def operator_states(
        self, vertices: list[Vertex], states: Mapping[TaskId, SubtaskState]
    ) -> tuple[OperatorState, ...]:
        """The operators of a manifest."""
        return tuple(
            with_chain(
                OperatorState(
                    vertex.id,
                    self.states.config.key_groups,
                    self.registries[vertex.id].infos(),
                    tuple(states[TaskId(vertex.id, i)] for i in range(vertex.parallelism)),
                ),
                vertex,
            )
            for vertex in vertices
        )

    def live_objects(self) -> set[str]:
        """Stored objects that running subtasks refer to."""
        parts = [task.parts for task in self.tasks if task.id not in self._released]
        held = [p.snapshotter.objects() | p.canonical.objects() for p in parts]
        held += [p.carrier.objects() for p in parts if p.carrier is not None]
        return set().union(*held)

    async def live(self, task: Task) -> None:
        """A task's whole life: its loop, beside it its materializer, and what it leaves behind."""
        materializer = self.states.materializer(task.id)
        if materializer is None:
            await task.run()
        else:
            await run_while(task.run(), materializer.run())
        self._released.add(task.id)
        with ExitStack() as closing:
            _close_operators(task, closing)
        await self.states.release(task.id)

    def close(self) -> None:
        """Close operators, sinks and tables, all of them even when one fails."""
        with ExitStack() as closing:
            for table in self.states.open_tables():
                closing.callback(table.close)
            for task in self.tasks:
                if task.id not in self._released:
                    _close_operators(task, closing)

    def _finished(
        self, task_id: TaskId, vertex: Vertex, output: Output | SinkOutput, wiring: Wiring
    ) -> FinishedTask:
        backend, snapshotter, canonical = self.states.build_finished(
            task_id, vertex, self.registries[vertex.id]
        )
        parts = TaskParts(
            id=task_id,
            chain=OperatorChain([]),
            backend=backend,
            snapshotter=snapshotter,
            canonical=canonical,
            output=output,
            uploader=None,
            effects=self.states.effects,
            listener=self.listener,
        )
        gate = wiring.gates[vertex.id][task_id.subtask] if vertex.inputs else None
        return FinishedTask(parts, gate)

    async def _recover_in_flight(
        self, restored: Checkpoint, vertices: list[Vertex], wiring: Wiring
    ) -> None:
        """Put the records that barriers had overtaken back into their channels."""
        if self.states.config.drop_in_flight:
            self.dropped_buffers, _ = in_flight_size(restored)
            return
        store, offload = self.states.origin or self.states.store, self.states.effects.offload
        parts = await read_in_flight(store, offload, restored, self.record_types)
        subtasks = {operator.id: len(operator.subtasks) for operator in restored.operators}
        recovered = redistribute(parts, vertices, wiring, subtasks)
        for (vertex, subtask, channel), data in recovered.items():
            gate = wiring.gates[vertex][subtask]
            gate.channels[channel].recover(data)
            gate.recovered()

    def _parts(
        self,
        task_id: TaskId,
        vertex: Vertex,
        output: Output | SinkOutput,
        state: SubtaskState | None,
        loaded: RestoredSubtask | None,
        total: int,
    ) -> TaskParts:
        effects = self.states.effects
        registry = self.registries[vertex.id]
        backend, snapshotter, canonical = self.states.build(
            task_id, vertex, registry, state, loaded, subtasks=total
        )
        chain = OperatorChain([_made(node) for node in vertex.nodes if node.operator])
        operator_states = OperatorStates(state.operator_state if state else ())
        chain.open(
            OperatorContext(
                vertex.id,
                task_id.subtask,
                vertex.parallelism,
                effects.clock,
                backend,
                operator_states,
            )
        )
        return TaskParts(
            id=task_id,
            chain=chain,
            backend=backend,
            snapshotter=snapshotter,
            canonical=canonical,
            output=output,
            uploader=self.states.uploader,
            effects=effects,
            listener=self.listener,
            restored=state,
            operator_states=operator_states,
            switching=Switching(self.states.config.unaligned.timeout) if self.uploader else None,
            carrier=self._carrier(task_id),
        )

    def _carrier(self, task: TaskId) -> InFlightCarrier | None:
        if self.uploader is None:
            return None
        effects, types = self.states.effects, self.record_types
        return InFlightCarrier(task.vertex, task.subtask, self.uploader, effects, types)

    async def _output(
        self, vertex: Vertex, subtask: int, wiring: Wiring, state: SubtaskState | None
    ) -> Output | SinkOutput:
        last = vertex.nodes[-1]
        if last.sink is None:
            return wiring.output(vertex, subtask, WorkTime(self.states.effects.clock))
        context = SinkContext(
            self.job, last.id, subtask, vertex.parallelism, self.generation, self.attempt
        )
        return await self._sink_output(last.sink, context, state)

    async def _sink_output(
        self, sink: Sink, context: SinkContext, state: SubtaskState | None
    ) -> SinkOutput:
        effects = self.states.effects
        offload = effects.offload
        with blame(context.name):
            writer = await offload.run(sink.open, context)
        output = SinkOutput(context.name, writer, offload, WorkTime(effects.clock))
        await output.recover(state.transactions if state else ())
        return output

    def _describe(self, loaded: Mapping[TaskId, RestoredSubtask]) -> None:
        """Tell the ledger which files the restored materializations consist of."""
        if self.states.origin is not None:
            return
        for subtask in loaded.values():
            for name, descriptor in subtask.descriptors.items():
                self.states.ledger.describe(name, descriptor.shared_bytes)


def _close_operators(task: Task, closing: ExitStack) -> None:
    if isinstance(task.parts.output, SinkOutput):
        closing.callback(task.parts.output.close)
    closing.callback(task.parts.chain.close)


def _made(node: Node) -> tuple[str, Operator]:
    """A node's operator by its id; making it can run a user's constructor."""
    assert node.operator is not None
    with blame(node.id):
        return node.id, node.operator()
