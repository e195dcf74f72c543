"""Vertices become tasks: operators opened, sinks recovered, channels wired, data in flight back."""

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from inspect import iscoroutinefunction

import msgspec

from tidelog.checkpoint.manifest import Checkpoint
from tidelog.errors import require
from tidelog.events import Event
from tidelog.ids import CheckpointId, SubtaskId
from tidelog.runtime.channels.buffers import BufferLimit
from tidelog.runtime.channels.output import ChannelOutput
from tidelog.runtime.config import JobConfig
from tidelog.runtime.in_flight.carrier import (
    InFlightCarrier,
    in_flight_buffers,
    read_in_flight,
    types_of,
)
from tidelog.runtime.operators.chain import OperatorChain
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.runtime.operators.progress import Standstills
from tidelog.runtime.operators.turn import WorkTime
from tidelog.runtime.restore.choose import RestorePlan
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.runtime.subtasks.state import SubtaskStates
from tidelog.runtime.subtasks.vertices import Vertex
from tidelog.runtime.subtasks.wiring import Buffers, Wiring
from tidelog.runtime.tasks.alignment import Switching
from tidelog.runtime.tasks.sink_output import SinkOutput, transactions_by_sink, transactions_of
from tidelog.runtime.tasks.source_task import SourceTask
from tidelog.runtime.tasks.splits import SourceSplits
from tidelog.runtime.tasks.stream_task import StreamTask
from tidelog.runtime.tasks.task import FinishedTask, Task
from tidelog.runtime.tasks.task_checkpoints import CheckpointListener, TaskParts
from tidelog.runtime.user_code import in_user_code, user_code
from tidelog.state.operator_state import OperatorStates

logger = logging.getLogger(__name__)


class TaskBuilder:
    """Builds the tasks of one start, whose state is restored."""

    def __init__(self, states: SubtaskStates, listener: CheckpointListener) -> None:
        self._start = start = states.start
        self._states = states
        self._listener = listener
        self._long_calls: set[str] = set()
        self._standstills_reported_at: dict[str, float] = {}
        self.splits: dict[str, SourceSplits] = {}
        """What the subtasks of each source share, by vertex."""
        self._record_types = types_of(start.job.record_types)
        history, vertices = start.history, start.plan.vertices
        self._retained = None if history.damaged else transactions_of(history.checkpoints)
        self._retained_by_sink = transactions_by_sink(history.checkpoints)
        self._settled = _settled(history.checkpoints, start.plan)
        buffers = _buffers(start.config, vertices)
        groups, share, exchange = start.config.key_groups, start.share, start.exchange
        self._wiring = Wiring(vertices, groups, buffers, start.registries, share, exchange)

    async def build(self) -> list[Task]:
        """All tasks in the order of the job, ready to run."""
        start, tasks = self._start, []
        for vertex in start.plan.vertices:
            source = vertex.head.source
            splits = None
            if source is not None:
                splits = self.splits[vertex.id] = SourceSplits(source, start.effects)
            finished = sum(subtask in start.plan.finished for subtask in vertex.subtasks)
            if finished and source is not None and source.rediscover_s is not None:
                # It follows now, and ended in an earlier run.
                Event.SOURCE_FINISHED_BEFORE.log(
                    logger, source=vertex.id, finished=finished, subtasks=vertex.parallelism
                )
            for subtask in start.share.of(vertex.subtasks):
                tasks.append(await self._task(subtask, vertex, splits))
        for registry in start.registries.values():
            for name in registry.check_renamed(start.config.allow_non_restored_state):
                Event.STATE_UNDECLARED.log(logger, state=name, operator=registry.operator)
        await self._recover_in_flight()
        return tasks

    async def _task(self, subtask: SubtaskId, vertex: Vertex, splits: SourceSplits | None) -> Task:
        wiring, number, source = self._wiring, subtask.subtask, vertex.head.source
        parts = self._parts(subtask, vertex, await self._output(subtask, vertex))
        if subtask in self._start.plan.finished:
            return FinishedTask(parts, wiring.gates[vertex.id][number] if vertex.inputs else None)
        if vertex.head.caller is not None:
            from tidelog.runtime.tasks.caller_task import CallerTask  # noqa: PLC0415  # no `run`

            return CallerTask(parts, vertex.head.caller)
        if source is not None and splits is not None:
            waits, ends = vertex.id in wiring.loading.awaited, bool(self._start.plan.before_end)
            return SourceTask(parts, source, splits, waits=waits, ends=ends)
        return StreamTask(
            parts,
            wiring.gates[vertex.id][number],
            wiring.inputs(vertex, number),
            exactly_once=self._start.config.mode == "exactly-once",
        )

    def _parts(self, subtask: SubtaskId, vertex: Vertex, output: ChannelOutput) -> TaskParts:
        start, plan, effects = self._start, self._start.plan, self._start.effects
        state, built = plan.loaded_by(subtask), self._states.build(subtask, vertex)
        operators: list[tuple[str, Operator]] = []
        for node in () if subtask in plan.finished else vertex.nodes:
            if node.operator is not None:
                with user_code(node.id):  # of which it may be a constructor
                    operators.append((node.id, node.operator()))
        chain = OperatorChain(operators, output.work, output.limit)
        operator_states = OperatorStates(state.operator_state if state else ())
        self._states.opened(subtask, chain.close)
        chain.open(OperatorContext(effects.clock, built.backend, operator_states))
        carrier, switching = None, None
        if start.config.overtakes and start.uploader is not None:
            switching = Switching(start.config.unaligned.timeout)
            carrier = InFlightCarrier(subtask, start.uploader, self._record_types)
        return TaskParts(
            id=subtask,
            chain=chain,
            backend=built.backend,
            snapshotter=built.snapshotter,
            canonical=built.canonical,
            output=output,
            uploader=start.log_uploader,
            effects=effects,
            listener=self._listener,
            restored=state,
            keyed=vertex.head.keyed,
            operator_states=operator_states,
            switching=switching,
            carrier=carrier,
        )

    async def _output(self, subtask: SubtaskId, vertex: Vertex) -> ChannelOutput:
        cadence, offload = self._start.cadence, self._start.effects.offload
        now = self._start.effects.clock.monotonic
        work = WorkTime(
            self._start.effects.clock,
            self._long_calls,
            urgent=lambda: cadence.under_way,
            threads_work=lambda: offload.working,
            standstills=Standstills(now, subtask, self._standstills_reported_at),
        )
        node = vertex.nodes[-1]
        if node.sink is None:
            return self._wiring.output(vertex, subtask.subtask, work)
        context = SinkContext(
            self._start.job.name,
            node.id,
            subtask.subtask,
            vertex.parallelism,
            self._start.author.generation,
            self._start.author.attempt,
            retained_transactions=self._retained,
            own_transactions=tuple(self._retained_by_sink.get(node.id, ())),
            committed_transactions=self._settled.get(node.id, {}),
            is_new_job=self._start.plan.checkpoint is None,
            clock=self._start.effects.clock,
        )
        open_sink = partial(self._opened, subtask, node.id, node.sink, context, work)
        output = await offload.run_to_end(in_user_code(node.id, open_sink))
        state = self._start.plan.state_of(subtask)
        await output.recover(state.transactions if state else ())
        return output

    def _opened(
        self, subtask: SubtaskId, name: str, sink: Sink, context: SinkContext, work: WorkTime
    ) -> SinkOutput:
        """In a thread: what it has opened is closed also when nobody waits for it any more."""
        offload = self._start.effects.offload
        writer = sink.open(context)
        calls = ("recover", "write", "pre_commit", "commit")
        # What an `async` method does, nobody would await.
        plain = not any(iscoroutinefunction(getattr(writer, call, None)) for call in calls)
        fits = plain and isinstance(writer, SinkWriter)
        require(
            f"the writer of sink {name!r}", writer, fits, "a SinkWriter without `async` methods"
        )
        output = SinkOutput(name, writer, offload, work, self._wiring.limit)
        self._states.opened(subtask, output.close)
        return output

    async def _recover_in_flight(self) -> None:
        """Put the records that barriers had overtaken back into their channels."""
        start, wiring, restored = self._start, self._wiring, self._start.plan.checkpoint
        if restored is None:
            return
        if start.config.drop_in_flight:
            Event.IN_FLIGHT_DROPPED.log(logger, buffers=in_flight_buffers(restored))
            return
        from tidelog.runtime.in_flight.redistribution import redistribute  # noqa: PLC0415

        store = start.plan.resumption.origin or start.objects
        data = await read_in_flight(store, start.effects.offload, restored, self._record_types)
        subtasks = {operator.id: len(operator.subtasks) for operator in restored.operators}
        recovered = redistribute(data, start.plan.vertices, wiring, subtasks)
        for (vertex, subtask, channel), messages in recovered.items():
            if not start.share.has(subtask):
                continue
            gate = wiring.gates[vertex][subtask]
            gate.channels[channel].recover(messages)
            gate.recovered()


def _settled(
    checkpoints: Iterable[Checkpoint], plan: RestorePlan
) -> Mapping[str, Mapping[bytes, CheckpointId]]:
    """Transactions that were committed before the restored checkpoint of this store, by sink."""
    restored = plan.checkpoint
    if restored is None or plan.resumption.origin is not None:
        return {}
    open_then = transactions_by_sink([restored])
    older = [checkpoint for checkpoint in checkpoints if checkpoint.slot < restored.slot]
    settled = transactions_by_sink(older)
    for sink, tokens in settled.items():
        for token in tokens.keys() & open_then.get(sink, {}).keys():
            del tokens[token]
    return settled


def _buffers(config: JobConfig, vertices: list[Vertex]) -> Buffers:
    """How many buffers the channels hold, and how large each may be."""
    buffers = Buffers(config.channel_buffers, config.unaligned.overdraft)
    size = config.memory_parts.buffer_bytes(config.buffer_bytes, buffers.count(vertices))
    return msgspec.structs.replace(buffers, limit=BufferLimit(size, config.buffer_records))
