"""A state of a checkpoint in a store against the expected one.

Invariants: one state of one checkpoint is compared; with Spark every partition is restored and
decoded in an executor, without it one after the other here; a table is open only while it is read.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.catalog.inventory import find_checkpoint
from tidelog.changelog.change import prefix_end
from tidelog.checkpoint.manifest import (
    Checkpoint,
    OperatorState,
    StateInfo,
    SubtaskState,
    decode_descriptor,
)
from tidelog.effects import Effects
from tidelog.errors import ConfigError
from tidelog.ids import Slot, SubtaskId
from tidelog.state.schema.decode import RowDecoder
from tidelog.storage.port import ObjectStore
from tidelog.table.port import Table
from tidelog.verify.engines import scratch
from tidelog.verify.expected.comparison import (
    Comparison,
    TruthResult,
    by_key,
    compare,
    expected_pairs,
)
from tidelog.verify.expected.function import Expected, Request, pairs
from tidelog.verify.expected.values import COMPARABLE, Shape, stored_values
from tidelog.verify.job.restoring import Restoring
from tidelog.verify.job.rows import Row
from tidelog.verify.unit import Engine, WorkerConfig, Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class StatePart:
    """A state of an operator, in one subtask of a checkpoint."""

    operator: str
    info: StateInfo
    state: SubtaskState
    files: Mapping[str, str]
    """The objects that hold the files of its materialization, by the files' names."""

    def restoring(self, workspace: Workspace) -> Restoring:
        """Restores the table that holds the state."""
        what = str(SubtaskId(self.operator, self.state.index))
        return Restoring.of(workspace, what, self.state.table)

    def rows(self, table: Table) -> Iterator[Row]:
        """The rows of the state, in the order of their keys."""
        for group in range(self.state.first_key_group, self.state.last_key_group + 1):
            prefix = group.to_bytes(2, "big") + self.info.id.to_bytes(2, "big")
            yield from table.scan(prefix, prefix_end(prefix))

    def values(self, table: Table) -> Iterator[tuple[str, str]]:
        """The keys of the state and their values as canonical text; raises RestoreError."""
        return stored_values(self.info, self.rows(table))


def values_elsewhere(part: StatePart, config: WorkerConfig) -> Iterator[tuple[str, str]]:
    """Keys and values of a part, in a process that has nothing open; raises what a restore does."""
    effects = Effects()
    with (
        closing(effects.offload),
        scratch(config.directory) as directory,
        asyncio.Runner() as runner,
    ):
        store = config.access.open(config.url, effects)
        opened = part.restoring(Workspace(store, effects, directory)).table(part.state, part.files)
        try:
            table = runner.run(_entered(opened))
            try:
                yield from part.values(table)
            finally:
                runner.run(_left(opened))
        finally:
            runner.run(store.close())


async def _entered(opened: AbstractAsyncContextManager[Table]) -> Table:
    return await opened.__aenter__()


async def _left(opened: AbstractAsyncContextManager[Table]) -> None:
    await opened.__aexit__(None, None, None)


_SPLITS: Final = "splits"


@dataclass(frozen=True, slots=True)
class StoreTruth:
    """Compares a state of a store; tables are built under `directory`."""

    store: ObjectStore
    effects: Effects
    engine: Engine
    directory: str | None
    question: Expected

    async def compare(self, slot: int) -> TruthResult:
        """Compare the state in a slot.

        Raises ConfigError when operator or state is not clear, UserFunctionError, and what a
        restore raises.
        """
        checkpoint = await find_checkpoint(self.store, Slot(slot))
        operator, info = chosen(checkpoint, self.question)
        parts = await self._parts(operator, info)
        session = self.engine.session
        asked = Request(
            url=self.store.url,
            checkpoint=slot,
            operator=operator.id,
            state=info.name,
            positions=await self._positions(checkpoint),
            final=checkpoint.final,
            spark=session,
        )
        run = self.effects.offload.run
        answer = await run(self.question.function, asked)
        if session is not None:
            return await run(self._by_spark, session, parts, answer, asked)
        expected = await run(self._expected, answer, Shape.of(info))
        comparison = Comparison(expected)
        for part in parts:
            await self._each(part, comparison.take, part.values)
        return comparison.finish(slot, operator.id, info.name)

    def _expected(self, answer: Any, shape: Shape) -> dict[str, str]:
        return by_key(pairs(answer, shape, self.question.name))

    def _by_spark(
        self, session: "SparkSession", parts: list[StatePart], answer: Any, asked: Request
    ) -> TruthResult:
        tasks = session.sparkContext.parallelize(parts, len(parts))
        state = tasks.flatMap(partial(values_elsewhere, config=self.engine.config))
        expected = expected_pairs(session, answer, Shape.of(parts[0].info), self.question)
        place = asked.checkpoint, asked.operator, asked.state
        return compare(session, state, expected, place)

    async def _parts(self, operator: OperatorState, info: StateInfo) -> list[StatePart]:
        return [
            StatePart(operator.id, info, state, await self._files(state.materialization))
            for state in operator.subtasks
        ]

    async def _files(self, ref: Any) -> Mapping[str, str]:
        if ref is None:
            return {}
        data = await self.store.get(ref.descriptor)
        descriptor = decode_descriptor(data, ref.descriptor)
        return {file.name: file.object for file in descriptor.shared}

    async def _positions(self, checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
        """Where every split of every source stood."""
        positions: dict[str, dict[str, Any]] = {}
        for operator in checkpoint.operators:
            for info in operator.states:
                if info.kind == _SPLITS:
                    found = positions.setdefault(operator.id, {})
                    for part in await self._parts(operator, info):
                        await self._each(part, found.update, partial(_splits, part))
        return positions

    async def _each(
        self, part: StatePart, take: Callable[[Any], None], read: Callable[[Any], Any]
    ) -> None:
        with scratch(self.directory) as directory:
            workspace = Workspace(self.store, self.effects, directory)
            async with part.restoring(workspace).table(part.state, part.files) as table:
                await self.effects.offload.run(lambda: take(read(table)))


def _splits(part: StatePart, table: Any) -> dict[str, Any]:
    decoder = RowDecoder([part.info])
    rows = (decoder.decode(key, value) for key, value in part.rows(table))
    return {row.key: row.value for row in rows}


def chosen(checkpoint: Checkpoint, question: Expected) -> tuple[OperatorState, StateInfo]:
    """The state that is asked for; raises ConfigError when there is none or more than one."""
    found = [
        (operator, info)
        for operator in checkpoint.operators
        for info in operator.states
        if question.operator in (None, operator.id)
        and question.state in (None, info.name)
        and info.kind in COMPARABLE
    ]
    if len(found) == 1:
        return found[0]
    known = [
        f"{operator.id} {info.name} ({info.kind})"
        for operator in checkpoint.operators
        for info in operator.states
        if not info.name.startswith("$")
    ]
    raise ConfigError(
        "--against without --operator and --state" if found else "the state for --against",
        expected=f"one state of a kind that has a value per key ({', '.join(COMPARABLE)})",
        found=f"{len(found)} of them; the checkpoint has {', '.join(known) or 'no state'}",
        action="name it with --operator and --state",
    )
