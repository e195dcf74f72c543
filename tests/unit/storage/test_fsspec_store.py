"""Whatever a file system raises, only our own errors leave the store."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.unit.storage.conformance import names
from tidelog.effects import Effects, InlineOffload
from tidelog.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
)
from tidelog.storage.fsspec_store import FsspecStore

CALLS: dict[str, Callable[[FsspecStore], Coroutine[Any, Any, Any]]] = {
    "put": lambda store: store.put("name", b"x"),
    "create": lambda store: store.create("name", b"x"),
    "get": lambda store: store.get("name"),
    "list": lambda store: names(store, "name"),
    "head": lambda store: store.head("name"),
    "delete": lambda store: store.delete("name"),
}


class Failing(MemoryFileSystem):
    """Raises `error` from every call a store makes."""

    error: Exception

    def _fail(self, *args: object, **kwargs: object) -> None:
        raise self.error

    pipe_file = cat_file = find = info = rm_file = _fail


def failing_store(error: Exception) -> FsspecStore:
    filesystem = Failing(global_store=False, skip_instance_cache=True)
    filesystem.error = error
    effects = Effects(offload=InlineOffload())
    return FsspecStore("odd://x", filesystem, "/x", effects, atomic_create=True)


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError("no"), AccessDeniedError),
        (OSError(errno.EACCES, "no"), AccessDeniedError),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), StoreFullError),
        (ConnectionResetError("gone"), StoreUnreachableError),
        (TimeoutError(), StoreUnreachableError),
        (OSError("odd"), StorageError),
        (RuntimeError("odd"), StorageError),
    ],
    ids=repr,
)
def test_an_error_of_the_file_system_is_translated(
    operation: str, error: Exception, expected: type[StorageError]
) -> None:
    with pytest.raises(StorageError, match="odd://x/name") as raised:
        asyncio.run(CALLS[operation](failing_store(error)))
    assert type(raised.value) is expected
    assert raised.value.__cause__ is error


def test_a_taken_and_a_missing_name_are_told_apart() -> None:
    with pytest.raises(ObjectExistsError):
        asyncio.run(CALLS["create"](failing_store(FileExistsError("name"))))
    with pytest.raises(ObjectNotFoundError):
        asyncio.run(CALLS["get"](failing_store(FileNotFoundError("name"))))
    assert asyncio.run(CALLS["list"](failing_store(FileNotFoundError("name")))) == []
    asyncio.run(CALLS["delete"](failing_store(FileNotFoundError("name"))))
