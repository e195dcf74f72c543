"""Each way in which an S3 server can refuse or fail has its own error, through real sockets."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from tests.wire.calls import IMPATIENT, OPERATIONS, call
from tests.wire.proxy import Behaviour, Exchange, proxy
from tests.wire.servers import S3Server, free_port
from tidelog.effects import Effects
from tidelog.errors import (
    AccessDeniedError,
    ConditionalPutError,
    ConfigError,
    ObjectExistsError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
)
from tidelog.storage.create_once import create_once
from tidelog.storage.open import open_store
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore
from tidelog.storage.retry_policy import RetryPolicy
from tidelog.storage.s3 import open_s3_store

_prefixes = count()


def run(store: ObjectStore, scenario: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


def opened(server: S3Server, policy: RetryPolicy | None = None) -> RetryingStore:
    url = server.url(f"errors/{next(_prefixes)}")
    return open_store(url, Effects(), policy=policy, options=server.options)


@pytest.fixture
def behaviour() -> Behaviour:
    return Behaviour()


@pytest.fixture
def misbehaving(moto: S3Server, behaviour: Behaviour) -> Iterator[S3Server]:
    """moto behind a proxy that does what `behaviour` says."""
    with proxy(moto.endpoint, behaviour) as endpoint:
        yield replace(moto, endpoint=endpoint)


def test_an_endpoint_where_nobody_listens_is_unreachable() -> None:
    nobody = S3Server("nobody", f"http://127.0.0.1:{free_port()}", "k", "s", honest=True)

    async def scenario(store: ObjectStore) -> None:
        for operation in OPERATIONS:
            with pytest.raises(StoreUnreachableError, match=r"name.*check the endpoint"):
                await call(store, operation)

    run(opened(nobody, IMPATIENT), scenario)


@pytest.mark.parametrize(
    ("wrong", "operations"),
    [
        ({"secret": "guessed"}, OPERATIONS),
        # Its answer to a HEAD with an unknown key is a bare 404, as for a missing object.
        ({"key": "stranger"}, [each for each in OPERATIONS if each != "head"]),
    ],
)
def test_wrong_credentials_are_denied(
    versitygw: S3Server, wrong: dict[str, str], operations: Sequence[str]
) -> None:
    async def scenario(store: RetryingStore) -> None:
        for operation in operations:
            with pytest.raises(AccessDeniedError, match="credentials"):
                await call(store, operation)
            assert getattr(store.request_metrics, operation).attempts == 1

    run(opened(replace(versitygw, **wrong)), scenario)


def test_missing_credentials_are_denied(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")

    async def scenario(store: ObjectStore) -> None:
        with pytest.raises(AccessDeniedError, match="credentials"):
            await store.put("name", b"x")

    url = moto.url("errors")
    run(open_store(url, Effects(), options={"endpoint_url": moto.endpoint}), scenario)


def test_a_missing_bucket_is_a_mistake_in_the_settings(s3_server: S3Server) -> None:
    async def scenario(store: ObjectStore) -> None:
        for operation in ("put", "create", "get", "list"):
            with pytest.raises(ConfigError, match="bucket"):
                await call(store, operation)

    run(opened(replace(s3_server, bucket="no-such-bucket")), scenario)


def test_a_malformed_endpoint_is_a_mistake_in_the_settings(moto: S3Server) -> None:
    async def scenario(store: ObjectStore) -> None:
        with pytest.raises(ConfigError, match="nonsense"):
            await store.put("name", b"x")

    run(opened(replace(moto, endpoint="nonsense")), scenario)


def test_the_usual_environment_leads_to_the_store(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)

    async def scenario(store: ObjectStore) -> None:
        await store.put("name", b"x")
        assert await store.get("name") == b"x"

    run(open_store(s3_server.url("environment"), Effects()), scenario)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "BadDigest", StorageError),
        (400, "AuthorizationHeaderMalformed", ConfigError),
        (401, "Unauthorized", AccessDeniedError),
        (403, "RequestTimeTooSkewed", AccessDeniedError),
        (408, "RequestTimeout", StoreUnreachableError),
        (409, "ConditionalRequestConflict", StoreUnreachableError),
        (409, "OperationAborted", StoreUnreachableError),
        (429, "TooManyRequests", StoreUnreachableError),
        (500, "InternalError", StoreUnreachableError),
        (502, "BadGateway", StoreUnreachableError),
        (503, "SlowDown", StoreUnreachableError),
        (507, "InsufficientStorage", StoreFullError),
    ],
)
def test_every_answer_has_its_error(
    misbehaving: S3Server,
    behaviour: Behaviour,
    status: int,
    code: str,
    expected: type[Exception],
) -> None:
    behaviour.error = lambda exchange: (status, code)

    async def scenario(store: ObjectStore) -> None:
        for operation in ("put", "create", "get"):
            with pytest.raises((StorageError, ConfigError), match=code) as raised:
                await call(store, operation)
            assert type(raised.value) is expected

    # Without the retrying store, to see that one call here is one request.
    run(open_s3_store(misbehaving.url("errors"), misbehaving.options), scenario)
    assert len(behaviour.seen) == 3


@pytest.mark.parametrize(
    ("status", "code"),
    [(409, "ConditionalRequestConflict"), (503, "SlowDown"), (500, "InternalError")],
)
def test_a_passing_trouble_is_retried(
    misbehaving: S3Server, behaviour: Behaviour, status: int, code: str
) -> None:
    def twice(exchange: Exchange) -> tuple[int, str] | None:
        return (status, code) if len(behaviour.seen) <= 2 else None

    behaviour.error = twice

    async def scenario(store: RetryingStore) -> None:
        for operation in ("put", "create"):
            behaviour.seen.clear()
            await call(store, operation, f"by {operation}")
            assert await store.get(f"by {operation}") == b"x"
            assert getattr(store.request_metrics, operation).retries == 2

    run(opened(misbehaving), scenario)


def test_a_create_whose_answer_was_lost_is_known_to_be_ours(
    misbehaving: S3Server, behaviour: Behaviour
) -> None:
    behaviour.lose_answer = lambda exchange: len(behaviour.seen) == 1

    async def scenario(store: RetryingStore) -> None:
        await create_once(store, "name", b"ours")
        assert store.request_metrics.create.retries == 1
        with pytest.raises(ObjectExistsError):
            await create_once(store, "name", b"theirs")
        assert await store.get("name") == b"ours"

    run(opened(misbehaving), scenario)


def test_a_call_whose_answer_was_lost_is_repeated(
    misbehaving: S3Server, behaviour: Behaviour
) -> None:
    behaviour.lose_answer = lambda exchange: len(behaviour.seen) == 1

    async def scenario(store: RetryingStore) -> None:
        for operation in ("put", "get", "head", "delete"):
            behaviour.seen.clear()
            await call(store, operation)
            assert getattr(store.request_metrics, operation).retries == 1

    run(opened(misbehaving), scenario)


def test_a_server_that_knows_no_conditional_writes_is_refused(
    misbehaving: S3Server, behaviour: Behaviour
) -> None:
    def refusing(exchange: Exchange) -> tuple[int, str] | None:
        return (501, "NotImplemented") if exchange.conditional else None

    behaviour.error = refusing

    async def scenario(store: ObjectStore) -> None:
        await store.put("name", b"x")
        with pytest.raises(ConditionalPutError, match="NotImplemented"):
            await store.create("other", b"x")

    run(opened(misbehaving), scenario)
