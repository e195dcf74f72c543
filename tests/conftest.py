"""Servers for tests, started once per run and shared; a test that is a coroutine has a loop."""

import asyncio
import gc
import inspect
import logging
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings

from tests.bytecode import compiled_once, keep_bytecode
from tests.memory_disk import use_memory_disk
from tests.order import begin_with_long_tests
from tests.support.depth import DEEP

if TYPE_CHECKING:
    from tests.support import postgres
    from tests.wire.proxy import Behaviour
    from tests.wire.servers import CloudServer, S3Server
    from tidelog.storage.config import S3Client

# Imported within: only tests that use a server pay for its libraries.

# A deadline would measure how busy the machine is. Deep runs draw new cases, all others the same
# ones each time: a rare case must not stop a change that has nothing to do with it. Explaining
# traces every line, and what takes longer than a test may is never told.
settings.register_profile(
    "tidelog", deadline=None, derandomize=not DEEP, phases=set(Phase) - {Phase.explain}
)
settings.load_profile("tidelog")


@pytest.fixture(params=[1, 3], ids=["one-process", "three-workers"])
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many workers the jobs of a test have that run by `tests.support.pipelines`."""
    from tests.support.workers import with_workers  # noqa: PLC0415  # it imports the runtime

    with with_workers(request.param):
        yield request.param


def pytest_configure(config: pytest.Config) -> None:
    keep_bytecode(config)
    use_memory_disk(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Modules and tests live until the end: the garbage collector need not look at them."""
    with compiled_once(session.config):
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    begin_with_long_tests(items)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture(params=["obstore", "s3fs"])
def s3_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> "S3Client":
    """Each client of S3 in turn, chosen by the environment."""
    name: S3Client = request.param
    monkeypatch.setenv("TIDELOG__STORAGE__S3__CLIENT", name)
    return name


@pytest.fixture
def behaviour() -> "Behaviour":
    """What the proxy in front of a server does."""
    from tests.wire.proxy import Behaviour  # noqa: PLC0415

    return Behaviour()


@pytest.fixture(scope="session")
def moto() -> Iterator["S3Server"]:
    from tests.wire import servers  # noqa: PLC0415  (takes seconds)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with servers.moto_server() as server:
        yield server


def _served(program: str, serve: str) -> Iterator[Any]:
    """A server by a program that `tests.wire.servers` finds; skipped, with the reason, without."""
    from tests.wire import servers  # noqa: PLC0415  (takes seconds)

    try:
        found = getattr(servers, program)()
    except servers.ServerUnavailableError as error:
        pytest.skip(str(error))
    with getattr(servers, serve)(found) as server:
        yield server


@pytest.fixture(scope="session")
def versitygw() -> Iterator["S3Server"]:
    """An honest server that checks credentials."""
    yield from _served("versitygw_binary", "versitygw_server")


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator["CloudServer"]:
    """Google Cloud Storage as far as this machine can have it."""
    yield from _served("fake_gcs_binary", "fake_gcs_server")


@pytest.fixture(scope="session")
def azurite() -> Iterator["CloudServer"]:
    """Azure Blob Storage as far as this machine can have it."""
    yield from _served("azurite_script", "azurite_server")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator["postgres.Server"]:
    from tests.support import postgres  # noqa: PLC0415  (few tests need it)

    if (reason := postgres.reason_without()) is not None:
        pytest.skip(reason)
    with postgres.server() as server:
        yield server


@pytest.fixture
def conninfo(postgres_server: "postgres.Server") -> str:
    """An empty database."""
    return postgres_server.database()
