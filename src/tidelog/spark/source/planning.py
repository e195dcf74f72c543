"""From a request to the parts that Spark's tasks read, without pyspark.

Invariant: planning writes nothing and reads manifests, indexes and listings only.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidelog.errors import ConfigError
from tidelog.spark.checkpoint.checkpoint import Layout, find_layout
from tidelog.spark.source import query
from tidelog.spark.source.job import changes as job_changes
from tidelog.spark.source.job import listings as job_listings
from tidelog.spark.source.job import state as job_state
from tidelog.spark.source.options import BundleBytes
from tidelog.spark.source.parts import ReadPart, ReadRequest, ReadSession
from tidelog.storage.port import ObjectStore

_Planner = Callable[[ObjectStore, ReadRequest], Awaitable[Sequence[ReadPart]]]

_PLANNERS: Final[Mapping[tuple[Layout, str], _Planner]] = {
    ("job", "checkpoints"): job_listings.plan_checkpoints,
    ("job", "objects"): job_listings.plan_objects,
    ("job", "blocks"): job_listings.plan_blocks,
    ("job", "changes"): job_changes.plan,
    ("job", "state"): job_state.plan,
    ("query", "checkpoints"): query.plan_checkpoints,
    ("query", "objects"): query.plan_objects,
}


async def plan(store: ObjectStore, request: ReadRequest) -> Sequence[ReadPart]:
    """The parts of the view at a store's root.

    Raises ObjectNotFoundError where nothing is to be read, ConfigError for a view that the layout
    does not have, the errors of what is damaged, and what the store raises.
    """
    options = request.options
    layout = await find_layout(store)
    planner = _PLANNERS.get((layout, options.view.name))
    if planner is None:
        raise ConfigError(
            f"view {options.view.name} of {store.url}",
            expected="a store of tidelog's own",
            found="the checkpoint of a Spark query, whose rows Spark alone decodes",
            action='read it with Spark: spark.read.format("statestore").load(...), and with '
            '.option("readChangeFeed", "true") what changed',
        )
    return bundled(await planner(store, request), options.partition_bytes)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Parts that are read one after the other."""

    parts: tuple[ReadPart, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def read(self, request: ReadRequest, session: ReadSession) -> Iterator[pa.RecordBatch]:
        for part in self.parts:
            yield from part.read(request, session)


_TASKS: Final = 8
"""So many keep a few cores busy; more would cost more to start than they take."""
_LEAST_BYTES: Final = 1 << 20
"""Starting a task takes about as long as reading so much."""
_MOST_BYTES: Final = 16 << 20


def bundled(parts: Sequence[ReadPart], limit_bytes: BundleBytes) -> Sequence[ReadPart]:
    """Neighbours put together while they stay within the limit; 0 leaves each on its own.

    The limit "auto" is an eighth of all bytes, but from 1 to 16 MiB.
    """
    if limit_bytes == 0:
        return parts
    share = sum(part.size for part in parts) // _TASKS
    suitable = min(max(share, _LEAST_BYTES), _MOST_BYTES)
    limit: int = suitable if limit_bytes == "auto" else limit_bytes
    bundles: list[list[ReadPart]] = []
    room = 0
    for part in parts:
        if not bundles or part.size > room:
            bundles.append([])
            room = limit
        bundles[-1].append(part)
        room -= part.size
    return [Bundle(tuple(bundle)) for bundle in bundles]
