"""A job that does not fit its store, by format, shape or state, is refused and changes nothing."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.faults.counting import (
    EXPECTED,
    Objects,
    counting,
    finish,
    manifest,
    newest,
    newest_without,
    refuse_poison,
    settings,
    source,
    start,
    usual,
    written_since,
)
from tests.support.damage import Damage, a_descriptor, checkpoint_in, damaged, of_a_newer_release
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside
from tidelog import Job, StatefulProcessor, StatefulProcessorHandle, TimerValues
from tidelog.errors import (
    ConfigError,
    FormatVersionError,
    RestoreError,
    StateSchemaError,
    UserFunctionError,
)
from tidelog.ids import Slot
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

START = object_names.checkpoint(Slot(0))


@pytest.mark.parametrize("restore", [None, 3], ids=["newest", "chosen"])
def test_a_newer_releases_checkpoint_is_refused_and_nothing_fenced(restore: int | None) -> None:
    objects = usual()
    newer = damaged(objects, manifest(newest(objects)), of_a_newer_release)
    store = store_of(newer)
    with pytest.raises(FormatVersionError, match=manifest(newest(objects))) as refused:
        finish(store, restore_slot=restore)
    assert "use the tidelog release that wrote it" in refused.value.action
    assert written_since(store, newer) == set()
    finish(store_of(objects), restore_slot=restore)


def test_a_newer_release_that_only_started_is_not_fenced_either() -> None:
    objects = usual()
    slot = newest(objects) + 1
    newer = {**objects, manifest(slot): of_a_newer_release(objects[START])}
    store = store_of(newer)
    with pytest.raises(FormatVersionError, match=manifest(slot)):
        finish(store)
    assert written_since(store, newer) == set()


def newer_descriptor(objects: Objects) -> tuple[str, Damage]:
    return a_descriptor(objects, newest(objects))[0], of_a_newer_release


def newer_block(objects: Objects) -> tuple[str, Damage]:
    states = [state for _, state in checkpoint_in(objects, newest(objects)).subtasks()]
    log_range = max((r for state in states for r in state.log), key=lambda r: r.segment)
    version_at = log_range.offset + len(b"TLBK")

    def newer(data: bytes) -> bytes:
        return data[:version_at] + bytes([data[version_at] + 1]) + data[version_at + 1 :]

    return log_range.segment, newer


@pytest.mark.parametrize("part", [newer_descriptor, newer_block])
def test_what_a_newer_release_stored_is_refused_and_an_older_slot_restored(
    part: Callable[[Objects], tuple[str, Damage]],
) -> None:
    objects = usual()
    name, newer = part(objects)
    hurt = damaged(objects, name, newer)
    store = store_of(hurt)
    with pytest.raises(FormatVersionError, match=name) as refused:
        finish(store)
    assert "or restore an older slot" in refused.value.action
    assert all(new.startswith(object_names.CHECKPOINTS) for new in written_since(store, hurt))
    older = newest_without(objects, name)
    assert finish(store, restore_slot=older).restored_slot == older
    finish(store_of(objects))


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [("renamed", {}, "count"), ("count", {"key_groups": 16}, "key groups")],
    ids=["operator renamed", "key groups"],
)
@pytest.mark.parametrize("restore", [None, 4], ids=["newest", "chosen"])
def test_a_job_of_another_shape_is_refused_and_nothing_fenced(
    name: str, changes: Mapping[str, Any], says: str, restore: int | None
) -> None:
    objects = usual()
    store = store_of(objects)
    with pytest.raises(RestoreError, match=says) as refused:
        job = counting(Outside(), name=name)
        start(job, store, settings(**changes), restore_slot=restore)
    assert "or start with an empty store" in refused.value.action
    assert written_since(store, objects) == set()
    finish(store, restore_slot=restore)


def test_a_slot_that_holds_no_checkpoint_is_refused_and_nothing_fenced() -> None:
    objects = usual()
    for slot in (0, newest(objects) + 1, 77):
        store = store_of(objects)
        with pytest.raises(RestoreError, match=f"slot {slot};") as refused:
            finish(store, restore_slot=slot)
        assert "tidelog checkpoints list URL" in refused.value.action
        assert written_since(store, objects) == set()


Declare = Callable[[StatefulProcessorHandle], Any]


class Tally(StatefulProcessor):
    """Numbers the occurrences of a word in a state that a test declares."""

    def __init__(self, declare: Declare) -> None:
        self._declare = declare

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = self._declare(handle)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Any]:
        for word in rows:
            (count,) = self.count.get() or (0,)
            self.count.update((count + 1,))
            yield word, count + 1


def tally(declare: Declare, sink: Outside, check: Callable[[str], str] = str) -> Job:
    job = Job("tally")
    words = job.source(source()).map(check, name="check").key_by(lambda word: word)
    words.transform_with_state(lambda: Tally(declare), name="tally").sink(sink)
    return job


def as_declared(handle: StatefulProcessorHandle) -> Any:
    return handle.getValueState("count", "number long")


@pytest.mark.parametrize(
    "changed",
    [
        lambda handle: handle.getValueState("count", "number string"),
        lambda handle: handle.getValueState("count", "more int, number long"),
        lambda handle: handle.getListState("count", "number long"),
        lambda handle: handle.getMapState("count", "number long", "number long"),
        lambda handle: handle.getValueState("count", "number long", 1_000),
    ],
    ids=["type", "fields", "list", "map", "ttl"],
)
def test_a_changed_state_is_refused_and_the_stored_definition_goes_on(changed: Declare) -> None:
    store, sink = MemoryStore(), Outside()
    with pytest.raises(UserFunctionError):
        start(tally(as_declared, sink, refuse_poison), store)
    before = contents(store)
    with pytest.raises(StateSchemaError, match="state 'count' of operator 'tally'") as refused:
        start(tally(changed, sink), store)
    assert "new name" in refused.value.action
    assert all(new.startswith(object_names.CHECKPOINTS) for new in written_since(store, before))
    assert start(tally(as_declared, sink), store).restored_slot is not None
    assert Counter(word for word, _ in sink.records) == EXPECTED
    assert {word: max(n for w, n in sink.records if w == word) for word in EXPECTED} == EXPECTED


@pytest.mark.parametrize("parallelism", [-1, 0, 9])
def test_an_operator_with_no_subtask_or_more_than_key_groups_is_refused(parallelism: int) -> None:
    job = Job("uneven")
    job.source(source(), parallelism=parallelism).sink(Outside())
    store = MemoryStore()
    with pytest.raises(ConfigError, match="parallelism of 'source'; expected a number from 1 to 8"):
        start(job, store)
    assert contents(store) == {}
