"""The calls of an object store by name, for tests of what becomes of each, and the clients of S3
that make them.
"""

from typing import Final

from tidelog.storage.config import S3Client
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry_policy import RetryPolicy

IMPATIENT = RetryPolicy(attempts=2, hedge_after=None, first_backoff=0.01)
"""For what stays in vain: by attempts, as a deadline would pass on a busy machine."""
CLIENTS: Final[dict[S3Client, str]] = {"obstore": "s3", "s3fs": "s3fs_store"}
"""The clients of S3, and the module of the adapter of each."""
OPERATIONS = ("put", "create", "get", "head", "delete", "list")


async def call(store: ObjectStore, operation: str, name: str = "name") -> None:
    """Make one of OPERATIONS with this object; what is written is b"x"."""
    if operation == "list":
        async for _ in store.list(name):
            pass
    else:
        content = (b"x",) if operation in ("put", "create") else ()
        await getattr(store, operation)(name, *content)
