"""A store that refuses, is full or forgets its promises: an error, no damage, and a good end."""

from collections.abc import Callable, Iterable
from random import Random

import pytest

from tests.faults.counting import checkpoints, counting, finish, settings, start, usual
from tests.support.clock import VirtualClock
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside, Portions
from tidelog import MaterializeConfig, Schedule
from tidelog.errors import (
    AccessDeniedError,
    CheckpointFailedError,
    ConditionalPutError,
    StorageError,
    StoreFullError,
    StoreUnreachableError,
)
from tidelog.storage import object_names
from tidelog.storage.errors import access_denied, store_full, store_unreachable
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore

Failing = Callable[[str, str], StorageError]

REFUSALS = pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (store_full, StoreFullError, "free or add space"),
        (store_unreachable, StoreUnreachableError, "check the endpoint and the network"),
        (access_denied, AccessDeniedError, "check the credentials"),
    ],
    ids=["full", "unreachable", "denied"],
)


def faulty(store: ObjectStore, *faults: Fault) -> FaultyStore:
    return FaultyStore(store, faults, VirtualClock(), Random(0))


def failing(operation: str, error: Failing) -> Fault:
    return Fault(FaultKind.FAIL, operation, error=error)


@REFUSALS
@pytest.mark.parametrize("operation", ["list", "get", "create"])
def test_a_store_that_refuses_at_the_start_stops_it_before_anything_is_written(
    operation: str, error: Failing, kind: type[StorageError], says: str
) -> None:
    store = store_of(usual())
    with pytest.raises(kind, match=object_names.CHECKPOINTS) as refused:
        finish(faulty(store, failing(operation, error)))
    assert says in refused.value.action
    assert contents(store) == usual()
    assert finish(store).restored_slot == checkpoints(usual())[-1]


@REFUSALS
def test_a_store_that_takes_no_more_stops_the_job_and_it_resumes_where_it_was(
    error: Failing, kind: type[StorageError], says: str
) -> None:
    store = store_of(usual())
    # Tables are refused, too, and must not be tried often enough to stop the job first.
    tables = MaterializeConfig(interval=2.5, retry_pause=1.0)
    chosen = settings(checkpoint=Schedule(interval=1.0, tolerable_failures=2), materialize=tables)
    with pytest.raises(CheckpointFailedError, match="3 checkpoints in a row") as failed:
        finish(faulty(store, failing("put", error)), chosen)
    assert says in str(failed.value)
    assert "it resumes from its last completed checkpoint" in failed.value.action
    assert finish(store).restored_slot == checkpoints(usual())[-1]


@REFUSALS
def test_a_store_that_deletes_nothing_keeps_no_job_from_its_end(
    error: Failing, kind: type[StorageError], says: str
) -> None:
    store = store_of(usual())
    finish(faulty(store, failing("delete", error)), settings(retain=1))
    assert usual().items() <= contents(store).items()


class Overwriting(MemoryStore):
    """A store that has never heard of conditions."""

    async def create(self, name: str, data: bytes) -> None:
        await self.put(name, data)


class Untouched(Portions):
    """A source that nobody may ask."""

    def __init__(self) -> None:
        super().__init__({})

    def discover(self) -> Iterable[str]:
        raise AssertionError("the job runs")


def test_a_store_without_conditional_writes_is_refused_before_anything_runs() -> None:
    store = Overwriting()
    with pytest.raises(ConditionalPutError, match="exactly one winner") as refused:
        start(counting(Outside(), read=Untouched()), store)
    assert "tidelog doctor" in refused.value.action
    assert not refused.value.retry_safe
    assert list(contents(store)) == ["checkpoints/00000000.json"]
    finish(store_of(contents(store)))
