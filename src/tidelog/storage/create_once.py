"""Create-once writes whose outcome is known.

Invariant: when `create_once` returns, the stored object is the one given; when it raises
ObjectExistsError, somebody else's is.
"""

from tidelog.errors import ObjectExistsError, ObjectNotFoundError
from tidelog.storage.port import ObjectStore


async def create_once(store: ObjectStore, name: str, data: bytes) -> None:
    """Create `name`, or find that an attempt whose answer was lost had created it.

    `data` must carry its author, so that equal bytes mean the same write. Raises
    ObjectExistsError when another author won: read the name to see who. Any other error, such
    as StoreUnreachableError, leaves the outcome open; calling again with the same data settles
    it.
    """
    try:
        await store.create(name, data)
    except ObjectExistsError as taken:
        if not await _is_stored(store, name, data):
            raise taken


async def _is_stored(store: ObjectStore, name: str, data: bytes) -> bool:
    try:
        return await store.get(name) == data
    except ObjectNotFoundError:
        # Taken a moment ago and deleted since: the one who deletes create-once objects rules here.
        return False
