"""Tables of an operator that serve before their files are here, and what it reads at its start."""

from dataclasses import dataclass
from pathlib import Path

from tidelog.checkpoint.descriptor import Descriptor
from tidelog.checkpoint.manifest import SubtaskState
from tidelog.ids import KeyGroup
from tidelog.state.key_groups import KeyGroupRange
from tidelog.state.recovery.hydration import Hydration, TableHydration
from tidelog.state.recovery.reads import FIRST_ROWS, KeyReads
from tidelog.table.port import Serve


@dataclass(frozen=True, slots=True)
class Serving:
    """Opens the tables of an operator."""

    hydration: Hydration
    reads: KeyReads
    key_groups: int
    """The number of key groups of the job."""

    async def open(
        self, descriptor: Descriptor, serve: Serve, directory: Path, state: SubtaskState
    ) -> TableHydration:
        """Open a table; what its subtask looks at first arrives while the log is replayed."""
        served = await self.hydration.open(descriptor, serve, directory)
        groups = KeyGroupRange(KeyGroup(state.first_key_group), KeyGroup(state.last_key_group))
        ranges = self.reads.at_start(groups, self.key_groups)
        served.first_reads = served.begin(served.ensure([], ranges, FIRST_ROWS))
        return served
