"""Which of the two layouts a location has.

Invariant: a location with neither is an error, so a mistyped URL is never an empty table.
"""

from typing import Final

from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint import COMMITS, LOG, OFFSETS
from tidelog.spark.source.options import Layout
from tidelog.storage import paths
from tidelog.storage.port import ObjectStore

_MARKS: Final[dict[Layout, tuple[str, ...]]] = {
    "job": (paths.CHECKPOINTS,),
    "query": (COMMITS, OFFSETS, LOG),
}


async def find_layout(store: ObjectStore, chosen: Layout | None) -> Layout:
    """The layout at a store's root, the chosen one if any was.

    Raises ObjectNotFoundError when it is not there, and what the store raises.
    """
    for layout in _MARKS if chosen is None else (chosen,):
        for prefix in _MARKS[layout]:
            if await _has(store, prefix):
                return layout
    raise ObjectNotFoundError(
        f"location {store.url}",
        expected="checkpoints/ of a tidelog job, or commits/ and offsets/ of a Spark query"
        if chosen is None
        else f"{' or '.join(_MARKS[chosen])} (option layout is {chosen})",
        found="neither" if chosen is None else "nothing there",
        action="check the URL; the first checkpoint makes it readable",
    )


async def _has(store: ObjectStore, prefix: str) -> bool:
    async for _ in store.list(prefix):
        return True
    return False
