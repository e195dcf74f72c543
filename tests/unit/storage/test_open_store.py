"""A URL leads to the right store, or to a message that says what to correct.

Whatever a file system raises, only our own errors leave the store.
"""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from socket import gaierror
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.support.clock import VirtualClock
from tests.unit.storage.conformance import names
from tidelog import (
    AccessDeniedError,
    ConditionalPutError,
    ConfigError,
    Effects,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
    open_store,
)
from tidelog.effects import InlineOffload
from tidelog.storage import open as opening
from tidelog.storage.fsspec_store import FsspecStore
from tidelog.storage.port import RequestMetrics

INLINE = Effects(offload=InlineOffload())


def put_through(url: str, name: str) -> None:
    asyncio.run(open_store(url, INLINE).put(name, b"x"))


def test_a_plain_path_and_a_file_url_lead_to_the_same_directory(tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    put_through(str(directory), "a")
    put_through(directory.as_uri(), "b")
    put_through(f"file://localhost{tmp_path}/with%20space", "c")
    assert asyncio.run(names(open_store(str(directory), INLINE))) == ["a", "b", "c"]
    assert (directory / "a").read_bytes() == b"x"
    assert open_store(str(directory), INLINE).url == directory.as_uri()


def test_two_openings_of_a_memory_url_see_the_same_objects() -> None:
    put_through("memory://open-store-test", "a")
    assert asyncio.run(names(open_store("memory://open-store-test", INLINE))) == ["a"]
    assert asyncio.run(names(open_store("memory://open-store-test-2", INLINE))) == []


def test_every_opened_store_counts_its_requests() -> None:
    metrics = RequestMetrics()
    store = open_store("memory://open-store-metrics", INLINE, metrics=metrics)
    asyncio.run(store.put("a", b"123"))
    assert (metrics.put.calls, metrics.bytes_written) == (1, 3)


def test_a_slow_disk_is_not_given_the_same_work_twice(tmp_path: Path) -> None:
    clock = VirtualClock()

    class SlowDisk(InlineOffload):
        async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            await clock.sleep(10.0)
            return function(*args, **kwargs)

    metrics = RequestMetrics()
    effects = Effects(clock=clock, offload=SlowDisk())
    asyncio.run(open_store(str(tmp_path), effects, metrics=metrics).put("a", b"x"))
    assert (metrics.put.attempts, metrics.put.seconds) == (1, 10.0)


def test_nothing_is_contacted_before_the_first_call(tmp_path: Path) -> None:
    open_store(str(tmp_path / "absent"), INLINE)
    open_store("s3://bucket/prefix", INLINE, options={"endpoint_url": "http://127.0.0.1:1"})
    assert list(tmp_path.iterdir()) == []


def test_an_s3_url_names_bucket_and_prefix() -> None:
    assert open_store("s3://bucket/a/b/", INLINE).url == "s3://bucket/a/b"
    assert open_store("s3://bucket", INLINE).url == "s3://bucket"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "path or URL"),
        ("nosuch://x/y", "nosuch"),
        ("file://elsewhere/x", "three slashes"),
        ("file:///", "absolute/path"),
        ("s3:///prefix", "no bucket"),
        ("gs:///prefix", "no bucket"),
        ("az:///prefix", "no container"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_store(url, INLINE)


def test_a_local_store_has_no_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="endpoint_url"):
        open_store(str(tmp_path), INLINE, options={"endpoint_url": "http://x"})


def test_an_s3_option_that_does_not_exist_is_named() -> None:
    store = open_store("s3://bucket", INLINE, options={"retires": 3})
    with pytest.raises(ConfigError, match="retires"):
        asyncio.run(store.head("name"))


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://bucket/prefix", "s3", "s3"),
        ("gs://bucket/prefix", "gcs", "gs"),
        ("az://container/prefix", "azure", "az"),
        ("abfs://container@account.dfs.core.windows.net/prefix", "azure", "az"),
    ],
)
def test_a_missing_library_names_the_extra_to_install(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        if name == f"tidelog.storage.{module}":
            raise ImportError("No module named 'missing'")
        return import_module(name)

    monkeypatch.setattr(opening, "import_module", missing)
    with pytest.raises(ConfigError, match=rf"pip install 'tidelog\[{extra}\]'"):
        open_store(url, INLINE)


def test_a_missing_library_of_another_scheme_is_named() -> None:
    with pytest.raises(ConfigError, match="install"):
        open_store("oss://bucket/prefix", INLINE)


@pytest.mark.parametrize(
    "error", [gaierror(-2, "Name or service not known"), ConnectionRefusedError(111, "refused")]
)
def test_a_server_that_cannot_be_asked_is_out_of_reach(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def url_to_fs(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("tidelog.storage.fsspec_store.url_to_fs", url_to_fs)
    with pytest.raises(StoreUnreachableError, match="store ftp://nowhere/x"):
        open_store("ftp://nowhere/x", INLINE)


async def test_a_scheme_without_an_atomic_create_is_refused_for_create(tmp_path: Path) -> None:
    store = open_store(f"local://{tmp_path}", INLINE)
    await store.put("a/b", b"x")
    assert await store.get("a/b") == b"x"
    with pytest.raises(ConditionalPutError, match="LocalFileSystem"):
        await store.create("a/c", b"x")
    assert await names(store) == ["a/b"]


def test_opening_a_local_store_imports_no_remote_library() -> None:
    program = """
import sys
from tidelog.effects import Effects
from tidelog.storage.open import open_store
open_store("/nowhere", Effects())
print(sorted({"obstore", "gcsfs", "fsspec", "botocore", "aiohttp"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


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
