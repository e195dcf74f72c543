"""What lies at a URL: a store of tidelog's own, or a checkpoint of Spark's."""

from typing import Literal

from tidelog.checkpoint.inventory import list_slots
from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint import COMMITS, OFFSETS
from tidelog.storage.port import ObjectStore

Layout = Literal["tidelog", "spark"]


async def layout_of(store: ObjectStore) -> Layout:
    """Which of the two it is; raises ObjectNotFoundError for neither."""
    if await list_slots(store):
        return "tidelog"
    for prefix in (OFFSETS, COMMITS):
        async for _ in store.list(prefix):
            return "spark"
    raise ObjectNotFoundError(
        f"store {store.url}",
        expected="the slots of a job, or the checkpoint of a Spark query",
        found="neither",
        action="check the URL",
    )
