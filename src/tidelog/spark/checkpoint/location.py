"""What a location holds, a job's store or a query's checkpoint, and its URL as tidelog opens it."""

from typing import Final, Literal
from urllib.parse import quote

from tidelog.catalog.application import refuse_application
from tidelog.errors import ObjectNotFoundError
from tidelog.spark.checkpoint.checkpoint import COMMITS, LOG, OFFSETS
from tidelog.storage import object_names
from tidelog.storage.port import ObjectStore

Layout = Literal["job", "query"]
"""tidelog's own store of a job, or the checkpoint of a Spark query."""

_PLACES: Final[dict[Layout, tuple[str, ...]]] = {
    "job": (object_names.CHECKPOINTS,),
    "query": (COMMITS, OFFSETS, LOG),
}
"""Where a location has something if it is of this layout."""

_S3: Final = ("s3a://", "s3n://")


async def find_layout(store: ObjectStore) -> Layout:
    """The layout at a store's root.

    A job has slots: other objects in the folder of its checkpoints make no job. Raises
    ObjectNotFoundError for anything else, so a mistyped URL is never an empty store, ConfigError
    for an application with a store for each partition, and what the store raises.
    """
    for layout, prefixes in _PLACES.items():
        for prefix in prefixes:
            async for info in store.list(prefix):
                if layout == "query" or object_names.slot_of(info.name) is not None:
                    return layout
    await refuse_application(store)
    raise ObjectNotFoundError(
        f"location {store.url}",
        expected="checkpoints/ of a tidelog job, or commits/ and offsets/ of a Spark query",
        found="neither",
        action="check the URL; the first checkpoint makes it readable",
    )


def store_url(location: str) -> str:
    """The URL under which `tidelog.storage` opens a Spark checkpoint location.

    Hadoop's s3a:// is s3://, and its file:/path, in which nothing is encoded, is file:///path;
    others stay as they are.
    """
    for scheme in _S3:
        if location.startswith(scheme):
            return "s3://" + location.removeprefix(scheme)
    if location.startswith("file:/") and not location.startswith("file://"):
        return "file://" + quote(location.removeprefix("file:"))
    return location
