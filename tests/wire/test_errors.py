"""Each way in which a store can refuse or fail has its own error, through real sockets: S3, Google
Cloud Storage and Azure Blob Storage.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.unit.storage.conformance import opened
from tests.wire.calls import IMPATIENT, OPERATIONS, call
from tests.wire.proxy import Behaviour, proxy
from tests.wire.servers import CloudServer, S3Server
from tidelog import RetryPolicy, open_store
from tidelog.errors import (
    AccessDeniedError,
    ConditionalPutError,
    ObjectExistsError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
)
from tidelog.storage.config import S3Client
from tidelog.storage.port import create_once

Server = S3Server | CloudServer

ALL = ("moto", "moto_by_s3fs", "fake_gcs", "azurite")
ONCE = RetryPolicy(attempts=1, hedge_after=None)

_prefixes = count()


def opened_on(
    server: Server, policy: RetryPolicy | None = None, options: dict[str, Any] | None = None
) -> AbstractAsyncContextManager[Any]:
    url = server.url(f"errors/{next(_prefixes)}")
    given = server.options if options is None else options
    return opened(lambda: open_store(url, policy=policy, options=given))


@pytest.fixture(params=ALL)
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def behind_a_proxy(server: Any, behaviour: Behaviour) -> Iterator[Any]:
    path = server.endpoint.removeprefix("http://").partition("/")[2]
    with proxy(server.endpoint, behaviour) as endpoint:
        yield replace(server, endpoint=f"{endpoint}/{path}".rstrip("/"))


@pytest.fixture
def misbehaving(server: Server, behaviour: Behaviour) -> Iterator[Server]:
    """A server behind a proxy that does what `behaviour` says."""
    yield from behind_a_proxy(server, behaviour)


@pytest.fixture
def misbehaving_s3(moto: S3Server, behaviour: Behaviour, s3_client: S3Client) -> Iterator[S3Server]:
    yield from behind_a_proxy(moto, behaviour)


async def test_an_endpoint_where_nobody_listens_is_unreachable(server: Server) -> None:
    nobody = replace(server, endpoint=f"http://127.0.0.1:{free_port()}")
    async with opened_on(nobody, IMPATIENT) as store:
        for operation in OPERATIONS:
            with pytest.raises(StoreUnreachableError, match=r"name.*check the endpoint"):
                await call(store, operation)


@pytest.mark.parametrize(
    ("wrong", "operations"),
    [
        ({"secret": "guessed"}, OPERATIONS),
        # Its answer to a HEAD with an unknown key is a bare 404, as for a missing object.
        ({"key": "stranger"}, [each for each in OPERATIONS if each != "head"]),
    ],
)
async def test_wrong_credentials_are_denied(
    versitygw: S3Server, s3_client: S3Client, wrong: dict[str, str], operations: Sequence[str]
) -> None:
    async with opened_on(replace(versitygw, **wrong)) as store:
        for operation in operations:
            with pytest.raises(AccessDeniedError, match="credentials"):
                await call(store, operation)
            assert getattr(store.request_metrics, operation).attempts == 1


async def test_the_usual_environment_leads_to_the_store(
    s3_server: S3Server, s3_client: S3Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    async with opened_on(s3_server, options={}) as store:
        await store.put("name", b"x")
        assert await store.get("name") == b"x"


ANSWERS = [
    (400, "BadDigest", StorageError),
    (401, "Unauthorized", AccessDeniedError),
    (403, "Forbidden", AccessDeniedError),
    (408, "RequestTimeout", StoreUnreachableError),
    (409, "OperationAborted", StoreUnreachableError),
    (429, "TooManyRequests", StoreUnreachableError),
    (500, "InternalError", StoreUnreachableError),
    (503, "ServerBusy", StoreUnreachableError),
    (507, "InsufficientStorage", StoreFullError),
]
OF_ONE = [
    *(
        (moto, *answer)
        for moto in ("moto", "moto_by_s3fs")
        for answer in (
            (409, "ConditionalRequestConflict", StoreUnreachableError),
            (502, "BadGateway", StoreUnreachableError),
            (503, "SlowDown", StoreUnreachableError),
        )
    ),
    ("fake_gcs", 412, "ConditionNotMet", ObjectExistsError),
    ("azurite", 412, "ConditionNotMet", ObjectExistsError),
]


@pytest.mark.parametrize(
    ("name", "status", "code", "expected"),
    [*((name, *answer) for name in ALL for answer in ANSWERS), *OF_ONE],
)
async def test_every_answer_has_its_error(
    name: str,
    status: int,
    code: str,
    expected: type[Exception],
    behaviour: Behaviour,
    request: pytest.FixtureRequest,
) -> None:
    behaviour.error = lambda exchange: (status, code)
    operations = ("create",) if expected is ObjectExistsError else ("put", "create", "get")
    for server in behind_a_proxy(request.getfixturevalue(name), behaviour):
        async with opened_on(server, ONCE) as store:
            for operation in operations:
                with pytest.raises(StorageError) as raised:
                    await call(store, operation)
                assert type(raised.value) is expected
                assert expected is ObjectExistsError or code in str(raised.value)
    assert len(behaviour.seen) == len(operations), "one call is one request"


@pytest.mark.parametrize(("status", "code"), [(409, "Conflict"), (503, "Busy"), (500, "Internal")])
async def test_a_passing_trouble_is_retried(
    misbehaving: Server, behaviour: Behaviour, status: int, code: str
) -> None:
    behaviour.error = lambda exchange: (status, code) if len(behaviour.seen) <= 2 else None
    async with opened_on(misbehaving) as store:
        for operation in ("put", "create"):
            behaviour.seen.clear()
            await call(store, operation, f"by {operation}")
            assert await store.get(f"by {operation}") == b"x"
            assert getattr(store.request_metrics, operation).retries == 2


async def test_a_create_whose_answer_was_lost_is_known_to_be_ours(
    misbehaving: Server, behaviour: Behaviour
) -> None:
    behaviour.lose_answer = lambda exchange: len(behaviour.seen) == 1
    async with opened_on(misbehaving) as store:
        await create_once(store, "name", b"ours")
        assert len(behaviour.seen) == 3, "a create, the same again, and a look whose object it is"
        with pytest.raises(ObjectExistsError):
            await create_once(store, "name", b"theirs")
        assert await store.get("name") == b"ours"


async def test_a_call_whose_answer_was_lost_is_repeated(
    misbehaving_s3: S3Server, behaviour: Behaviour
) -> None:
    behaviour.lose_answer = lambda exchange: len(behaviour.seen) == 1
    async with opened_on(misbehaving_s3) as store:
        for operation in ("put", "get", "head", "delete"):
            behaviour.seen.clear()
            await call(store, operation)
            assert len(behaviour.seen) == 2


async def test_a_server_that_knows_no_conditional_writes_is_refused(
    misbehaving_s3: S3Server, behaviour: Behaviour
) -> None:
    behaviour.error = lambda asked: (501, "NotImplemented") if asked.conditional else None
    async with opened_on(misbehaving_s3) as store:
        await store.put("name", b"x")
        with pytest.raises(ConditionalPutError, match="NotImplemented"):
            await store.create("other", b"x")
