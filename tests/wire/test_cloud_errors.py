"""Refusals and failures of Google Cloud Storage and Azure Blob Storage have the errors of S3's."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from tests.support.cli import tidelog
from tests.wire.calls import IMPATIENT, OPERATIONS, call
from tests.wire.proxy import Behaviour, Exchange, proxy
from tests.wire.servers import CloudServer, free_port
from tidelog.effects import Effects
from tidelog.errors import (
    AccessDeniedError,
    ConfigError,
    ObjectExistsError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
)
from tidelog.storage.create_once import create_once
from tidelog.storage.open import open_store
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry_policy import RetryPolicy

ONCE = RetryPolicy(attempts=1, hedge_after=None)

_prefixes = count()


def run(
    server: CloudServer,
    scenario: Callable[[ObjectStore], Coroutine[Any, Any, None]],
    policy: RetryPolicy | None = None,
) -> None:
    async def main() -> None:
        url = server.url(f"errors/{next(_prefixes)}")
        store = open_store(url, Effects(), policy=policy, options=server.options)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


@pytest.fixture
def behaviour() -> Behaviour:
    return Behaviour()


@pytest.fixture
def misbehaving(cloud: CloudServer, behaviour: Behaviour) -> Iterator[CloudServer]:
    """A cloud behind a proxy that does what `behaviour` says."""
    path = cloud.endpoint.removeprefix("http://").partition("/")[2]
    with proxy(cloud.endpoint, behaviour) as endpoint:
        yield replace(cloud, endpoint=f"{endpoint}/{path}".rstrip("/"))


def test_doctor_passes_a_cloud(cloud: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    result = tidelog("doctor", cloud.url("probed"))
    assert result.exit_code == 0, result.output
    assert "one winner in each of" in result.output


def test_an_endpoint_where_nobody_listens_is_unreachable(cloud: CloudServer) -> None:
    async def scenario(store: ObjectStore) -> None:
        for operation in OPERATIONS:
            with pytest.raises(StoreUnreachableError, match=r"name.*check the endpoint"):
                await call(store, operation)

    run(replace(cloud, endpoint=f"http://127.0.0.1:{free_port()}"), scenario, IMPATIENT)


def test_a_missing_container_is_a_mistake_in_the_settings(azurite: CloudServer) -> None:
    async def scenario(store: ObjectStore) -> None:
        for operation in ("put", "create", "get", "list"):
            with pytest.raises(ConfigError, match="bucket"):
                await call(store, operation)

    run(replace(azurite, bucket="no-such-container"), scenario)


def test_a_wrong_key_is_denied(azurite: CloudServer) -> None:
    async def scenario(store: ObjectStore) -> None:
        for operation in OPERATIONS:
            with pytest.raises(AccessDeniedError, match="credentials"):
                await call(store, operation)

    wrong = {**azurite.credentials, "account_key": "c2VzYW1lLW9wZW4="}
    run(replace(azurite, credentials=wrong), scenario)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "Malformed", StorageError),
        (401, "Unauthorized", AccessDeniedError),
        (403, "Forbidden", AccessDeniedError),
        (408, "Timeout", StoreUnreachableError),
        (409, "ContainerBeingDeleted", StoreUnreachableError),
        (412, "ConditionNotMet", ObjectExistsError),
        (429, "TooManyRequests", StoreUnreachableError),
        (500, "InternalError", StoreUnreachableError),
        (503, "ServerBusy", StoreUnreachableError),
        (507, "InsufficientStorage", StoreFullError),
    ],
)
def test_every_answer_has_its_error(
    misbehaving: CloudServer,
    behaviour: Behaviour,
    status: int,
    code: str,
    expected: type[Exception],
) -> None:
    behaviour.error = lambda exchange: (status, code)

    async def scenario(store: ObjectStore) -> None:
        with pytest.raises(StorageError) as raised:
            await store.create("name", b"x")
        assert type(raised.value) is expected
        if expected is not ObjectExistsError:
            assert code in str(raised.value)

    run(misbehaving, scenario, ONCE)
    assert len(behaviour.seen) == 1, "one call is one request"


def test_a_passing_trouble_is_retried(misbehaving: CloudServer, behaviour: Behaviour) -> None:
    def twice(exchange: Exchange) -> tuple[int, str] | None:
        return (503, "ServerBusy") if len(behaviour.seen) <= 2 else None

    behaviour.error = twice

    async def scenario(store: ObjectStore) -> None:
        for operation in ("put", "create"):
            behaviour.seen.clear()
            await call(store, operation, f"by {operation}")
            assert await store.get(f"by {operation}") == b"x"

    run(misbehaving, scenario)


def test_a_create_whose_answer_was_lost_is_known_to_be_ours(
    misbehaving: CloudServer, behaviour: Behaviour
) -> None:
    behaviour.lose_answer = lambda exchange: len(behaviour.seen) == 1

    async def scenario(store: ObjectStore) -> None:
        await create_once(store, "name", b"ours")
        with pytest.raises(ObjectExistsError):
            await create_once(store, "name", b"theirs")
        assert await store.get("name") == b"ours"

    run(misbehaving, scenario)
