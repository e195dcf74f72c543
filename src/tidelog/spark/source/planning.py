"""From a request to the parts that Spark's tasks read, without pyspark.

Invariant: planning writes nothing and reads manifests, indexes and listings only.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from tidelog.errors import ConfigError
from tidelog.spark.checkpoint.location import Layout, find_layout
from tidelog.spark.source.job import blocks as job_blocks
from tidelog.spark.source.job import changes as job_changes
from tidelog.spark.source.job import checkpoints as job_checkpoints
from tidelog.spark.source.job import objects as job_objects
from tidelog.spark.source.job import state as job_state
from tidelog.spark.source.parts import Part, Request, bundled
from tidelog.spark.source.query import blocks as query_blocks
from tidelog.spark.source.query import changes as query_changes
from tidelog.spark.source.query import checkpoints as query_checkpoints
from tidelog.spark.source.query import objects as query_objects
from tidelog.storage.port import ObjectStore

_Planner = Callable[[ObjectStore, Request], Awaitable[Sequence[Part]]]

_PLANNERS: Final[Mapping[tuple[Layout, str], _Planner]] = {
    ("job", "checkpoints"): job_checkpoints.plan,
    ("job", "objects"): job_objects.plan,
    ("job", "blocks"): job_blocks.plan,
    ("job", "changes"): job_changes.plan,
    ("job", "state"): job_state.plan,
    ("query", "checkpoints"): query_checkpoints.plan,
    ("query", "objects"): query_objects.plan,
    ("query", "blocks"): query_blocks.plan,
    ("query", "changes"): query_changes.plan,
}


async def plan(store: ObjectStore, request: Request) -> Sequence[Part]:
    """The parts of the view at a store's root.

    Raises ObjectNotFoundError where nothing is to be read, ConfigError for a view that the layout
    does not have, the errors of what is damaged, and what the store raises.
    """
    options = request.options
    layout = await find_layout(store, options.layout)
    planner = _PLANNERS.get((layout, options.view.name))
    if planner is None:
        raise ConfigError(
            f"view {options.view.name} of {store.url}",
            expected="a store of tidelog's own",
            found="the checkpoint of a Spark query, whose rows Spark alone decodes",
            action='read it with Spark: spark.read.format("statestore").load(...)',
        )
    return bundled(await planner(store, request), options.partition_bytes)
