"""One state of one partition, read key by key, here or in an executor.

Invariant: a part is small and can be pickled; a table is open only while it is read.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass

from tidelog.changelog.change import prefix_end
from tidelog.checkpoint.manifest import StateInfo, SubtaskState
from tidelog.effects import Effects
from tidelog.storage.open import open_store
from tidelog.table.port import Table
from tidelog.verify.bench import Bench
from tidelog.verify.store.restoring import Restoring
from tidelog.verify.store.rows import Row
from tidelog.verify.store.structure import partition_label
from tidelog.verify.truth.values import stored_values
from tidelog.verify.worker import Workplace, scratch


@dataclass(frozen=True, slots=True)
class StatePart:
    """A state of an operator, in one subtask of a checkpoint."""

    operator: str
    info: StateInfo
    state: SubtaskState
    files: Mapping[str, str]
    """The objects that hold the files of its materialization, by the files' names."""

    def restoring(self, bench: Bench) -> Restoring:
        """What restores it."""
        return Restoring(bench, partition_label(self.operator, self.state.index))

    def rows(self, table: Table) -> Iterator[Row]:
        """Its rows in the order of their keys."""
        for group in range(self.state.first_key_group, self.state.last_key_group + 1):
            prefix = group.to_bytes(2, "big") + self.info.id.to_bytes(2, "big")
            yield from table.scan(prefix, prefix_end(prefix))

    def values(self, table: Table) -> Iterator[tuple[str, str]]:
        """Its keys and their values as canonical text; raises RestoreError."""
        return stored_values(self.info, self.rows(table))


def values_elsewhere(part: StatePart, place: Workplace) -> Iterator[tuple[str, str]]:
    """Keys and values of a part, in a process that has nothing open; raises what a restore does."""
    effects = Effects()
    with (
        closing(effects.offload),
        scratch(place.directory) as directory,
        asyncio.Runner() as runner,
    ):
        store = open_store(place.url, effects, options=place.options)
        opened = part.restoring(Bench(store, effects, directory)).table(part.state, part.files)
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
