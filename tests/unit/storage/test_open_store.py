"""A URL leads to the right store, or to a message that says what to correct; whatever a file
system raises, only our own errors leave the store. Object names sort as their numbers do,
and only our own are parsed."""

import asyncio
import errno
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.support.clock import VirtualClock
from tests.unit.storage.conformance import names
from tests.unit.storage.test_every_store_conforms import CreatingStore
from tests.wire.calls import OPERATIONS, call
from tidelog import (
    AccessDeniedError,
    ConditionalPutError,
    ConfigError,
    S3Config,
    StorageConfig,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
    open_store,
)
from tidelog.effects import Effects, InlineOffload
from tidelog.ids import Generation, MaterializationId, Slot
from tidelog.storage import object_names
from tidelog.storage import open as opening
from tidelog.storage.port import RequestMetrics

INLINE = Effects(offload=InlineOffload())


def put_through(url: str, name: str) -> None:
    asyncio.run(open_store(url, effects=INLINE).put(name, b"x"))


def test_a_plain_path_and_a_file_url_lead_to_the_same_directory(tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    put_through(str(directory), "a")
    put_through(directory.as_uri(), "b")
    put_through(f"file://localhost{tmp_path}/with%20space", "c")
    assert asyncio.run(names(open_store(str(directory), effects=INLINE))) == ["a", "b", "c"]
    assert (directory / "a").read_bytes() == b"x"
    assert open_store(str(directory), effects=INLINE).url == directory.as_uri()


def test_a_variable_that_is_no_option_of_a_cloud_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one with a typing error: its option, such as encryption, would be left out."""
    monkeypatch.setenv("TIDELOG_STORE_SERVER_SIDE_ENCRYPTON", "aws:kms")
    monkeypatch.setenv("TIDELOG_STORE_PORT_9000_TCP", "tcp://10.0.0.11:9000")  # of Kubernetes
    for url in ("s3://bucket/words", "gs://bucket/words"):
        with pytest.raises(
            ConfigError, match=r"environment: TIDELOG_STORE_SERVER_SIDE_ENCRYPTON\."
        ):
            put_through(url, "a")


def test_a_slow_disk_is_not_given_the_same_work_twice(tmp_path: Path) -> None:
    clock = VirtualClock()

    class SlowDisk(InlineOffload):
        async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            await clock.sleep(10.0)
            return function(*args, **kwargs)

    metrics = RequestMetrics()
    effects = Effects(clock=clock, offload=SlowDisk())
    asyncio.run(open_store(str(tmp_path), effects=effects, metrics=metrics).put("a", b"x"))
    assert (metrics.put.attempts, metrics.put.seconds) == (1, 10.0)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "path or URL"),
        ("nosuch://x/y", "nosuch"),
        ("file://elsewhere/x", "three slashes"),
        ("file:///", "absolute/path"),
        ("s3:/bucket/prefix", "s3://.*or ./s3:/"),
        ("hdfs:/checkpoints", "hdfs://"),
        ("file:checkpoints", "file://.*or ./file:checkpoints"),
        ("gcs:bucket", "gcs://.*or ./gcs:bucket"),
        ("s3:///prefix", "no bucket"),
        ("s3a://bucket/prefix", "write s3://bucket/prefix"),
        ("gs:///prefix", "no bucket"),
        ("az:///prefix", "no container"),
        ("s3://bucket/jobs#1", "which ends the path"),
        ("gs://bucket/jobs?1", "which ends the path"),
        ("s3://bucket/jobs//1", "a path without //"),
        ("az://container/jobs/../1", "a path without //"),
        ("file:///jobs#1", "no \\? or #"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_store(url, effects=INLINE)


async def test_the_client_of_s3_is_the_one_that_is_set() -> None:
    by_s3fs = StorageConfig(S3Config("s3fs"))
    store = open_store("s3://bucket", storage=by_s3fs, options={"multipart_above": 1})
    with pytest.raises(ConfigError, match="multipart_above, which this cloud does not have"):
        await store.get("name")
    with pytest.raises(ConfigError, match="boto3"):
        S3Config("boto3")


def test_a_client_of_s3_that_the_environment_names_wrong_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELOG__STORAGE__S3__CLIENT", "boto3")
    with pytest.raises(ConfigError, match=r"storage\.s3\.client.*obstore, s3fs.*boto3"):
        open_store("s3://bucket", effects=INLINE)


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
        open_store(url, effects=INLINE)


async def test_a_scheme_without_an_atomic_create_is_refused_for_create(tmp_path: Path) -> None:
    store = open_store(f"local://{tmp_path}", effects=INLINE)
    await store.put("a/b", b"x")
    assert await store.get("a/b") == b"x"
    with pytest.raises(ConditionalPutError, match="LocalFileSystem"):
        await store.create("a/c", b"x")
    assert await names(store) == ["a/b"]


class Failing(MemoryFileSystem):
    """Raises `error` from every call a store makes."""

    error: Exception

    def _fail(self, *args: object, **kwargs: object) -> None:
        raise self.error

    pipe_file = cat_file = find = info = rm_file = _fail


@pytest.mark.parametrize("operation", OPERATIONS)
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
async def test_an_error_of_the_file_system_is_translated(
    operation: str, error: Exception, expected: type[StorageError]
) -> None:
    filesystem = Failing(global_store=False, skip_instance_cache=True)
    filesystem.error = error
    store = CreatingStore("odd://x", filesystem, "/x", INLINE)
    with pytest.raises(StorageError, match="odd://x/name") as raised:
        await call(store, operation)
    assert type(raised.value) is expected
    assert raised.value.__cause__ is error


def test_names_are_those_of_the_format() -> None:
    assert object_names.checkpoint(Slot(123)) == "checkpoints/00000123.json"
    assert (
        object_names.segment(Generation(7), "driver", 42)
        == "segments/00000007-driver-0000000042.seg"
    )
    assert object_names.table_file(Generation(7), "0af3") == "tables/00000007/0af3.sst"
    name = object_names.materialization(Generation(7), "count-words.v2", 3, MaterializationId(12))
    assert name == "materializations/00000007/count-words.v2-3-12.json"
    assert object_names.probe("0af3", "race-1") == "probe/0af3/race-1"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "checkpoints/123.json",
        "checkpoints/000000123.json",
        "checkpoints/a00000123.json",
        "checkpoints/00000123.json.bak",
        "old/checkpoints/00000123.json",
        "checkpoints/0000012x.json",
        "checkpoints/00000123.json\n",
        "segments/7-driver-0000000042.seg",
        "segments/00000007-0000000042.seg",
        "segments/00000007-driver-42.seg",
        "tables/00000007/a/b.sst",
        "materializations/00000007/count-3.json",
        "probe/0af3/race-1",
    ],
)
def test_a_foreign_name_is_not_parsed(name: str) -> None:
    assert object_names.slot_of(name) is None
    assert object_names.generation_of(name) is None


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "ä", "a\tb", "a\n"]
)
def test_a_name_outside_the_port_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="object name"):
        object_names.check_name(name)
