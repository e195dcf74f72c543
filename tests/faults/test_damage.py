"""A job never runs on damaged state, nor on a store that does not fit it by format, shape or
state: it names the object, and an older checkpoint brings it back."""

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from tests.faults.counting import (
    EXPECTED,
    Objects,
    broken_off,
    counting,
    finish,
    manifest,
    newest,
    newest_without,
    settings,
    start,
    usual,
    written_since,
)
from tests.support.damage import (
    Damage,
    a_descriptor,
    a_table_file,
    checkpoint_in,
    damaged,
    flipped,
    flipped_at,
    missing,
    needs,
    of_a_newer_release,
    truncated,
)
from tests.support.jobs import contents, store_of
from tests.support.pipelines import Outside
from tidelog import CorruptObjectError, JobConfig, RestoreError, TidelogError, UploadConfig
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import SubtaskState, encode_entry
from tidelog.errors import FormatVersionError
from tidelog.storage import object_names

DAMAGES = pytest.mark.parametrize("damage", [truncated, flipped, missing])


def a_log_range(objects: Objects) -> LogRange:
    """The end of the log that the newest checkpoint needs."""
    states = [state for _, state in checkpoint_in(objects, newest(objects)).subtasks()]
    return max((r for state in states for r in state.log), key=lambda r: (r.segment, r.offset))


def refuses(
    hurt: Objects,
    name: str,
    *errors: type[TidelogError],
    action: str = "restore an older checkpoint (`tidelog inspect URL --deep`",
) -> None:
    """A start fails, says where and what to do, and changes no object."""
    store = store_of(hurt)
    with pytest.raises(errors or (CorruptObjectError, RestoreError), match=name) as refused:
        finish(store)
    assert action in refused.value.action
    assert all(new.startswith(object_names.CHECKPOINTS) for new in written_since(store, hurt))


def comes_back(hurt: Objects, sound: Objects, name: str) -> None:
    """After any number of refused starts an older checkpoint finishes; so does the mended store."""
    store = store_of(hurt)
    for _ in range(2):
        with pytest.raises(TidelogError):
            finish(store)
    older = newest_without(sound, name)
    assert finish(store, restore_checkpoint=older).restored_checkpoint == older
    mended = store_of({**contents(store_of(hurt)), name: sound[name]})
    assert finish(mended).restored_checkpoint == newest(sound)


@DAMAGES
@pytest.mark.parametrize("part", ["table file", "descriptor"])
def test_a_damaged_materialization_is_refused_and_an_older_slot_restored(
    part: str, damage: Damage
) -> None:
    objects = usual()
    slot = newest(objects)
    name = a_descriptor(objects, slot)[0] if part == "descriptor" else a_table_file(objects, slot)
    hurt = damaged(objects, name, damage)
    refuses(hurt, name)
    comes_back(hurt, objects, name)


def bit_in(log_range: LogRange) -> Damage:
    return flipped_at(log_range.offset + log_range.length // 2, 16)


def cut_in(log_range: LogRange) -> Damage:
    return lambda data: data[: log_range.offset + log_range.length // 2]


@pytest.mark.parametrize("harm", [bit_in, cut_in, lambda _: missing], ids=["bit", "cut", "missing"])
def test_a_damaged_block_is_refused_and_an_older_slot_restored(
    harm: Callable[[LogRange], Damage],
) -> None:
    objects = usual()
    log_range = a_log_range(objects)
    hurt = damaged(objects, log_range.segment, harm(log_range))
    refuses(hurt, log_range.segment)
    comes_back(hurt, objects, log_range.segment)


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_newest_manifest_is_refused_before_anything_is_fenced(damage: Damage) -> None:
    objects = usual()
    slot = newest(objects)
    hurt = damaged(objects, manifest(slot), damage)
    refuses(hurt, manifest(slot))
    store = store_of(hurt)
    with pytest.raises(CorruptObjectError):
        finish(store)
    assert written_since(store, hurt) == set()
    assert finish(store, restore_checkpoint=slot - 1).restored_checkpoint == slot - 1
    assert finish(store_of({**hurt, manifest(slot): objects[manifest(slot)]}))


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_older_manifest_stops_no_job_and_nothing_it_may_refer_to_is_deleted(
    damage: Damage,
) -> None:
    objects = usual()
    older = newest(objects) - 3
    name = manifest(older)
    store, sink = store_of(damaged(objects, name, damage)), Outside()
    for _ in range(2):
        start(counting(sink), store, settings(retain=1))
    assert Counter(dict(sink.records)) == EXPECTED
    after = contents(store)
    assert manifest(newest(objects)) not in after, "retention was at work"
    assert needs(objects, older) <= after.keys()


@DAMAGES
@pytest.mark.parametrize("prefix", [object_names.SEGMENTS, object_names.MATERIALIZATIONS])
def test_an_object_that_only_older_slots_need_stops_no_job(prefix: str, damage: Damage) -> None:
    objects = usual()
    slot = newest(objects)
    only_older = needs(objects, slot - 3) - needs(objects, slot)
    name = min(name for name in only_older if name.startswith(prefix))
    assert finish(store_of(damaged(objects, name, damage))).restored_checkpoint == slot


@pytest.fixture(scope="module")
def inline() -> Objects:
    """A store whose log is in its manifests."""
    return broken_off(_inline())


def _inline() -> JobConfig:
    return settings(upload=UploadConfig(inline_bytes=100_000))


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_block_inside_a_sound_manifest_is_refused(
    damage: Callable[[bytes], bytes], inline: Objects
) -> None:
    """As no disk does it, but a writer with a defect could: the manifest's checksum is right."""
    slot = newest(inline)
    checkpoint = checkpoint_in(inline, slot)
    operators = tuple(
        msgspec.structs.replace(operator, subtasks=tuple(map(_hurting(damage), operator.subtasks)))
        for operator in checkpoint.operators
    )
    hurt = encode_entry(msgspec.structs.replace(checkpoint, operators=operators))
    store = store_of({**inline, manifest(slot): hurt})
    before = contents(store)
    with pytest.raises(CorruptObjectError, match=r"inline log of (count|source)-") as refused:
        finish(store, _inline())
    assert "restore an older checkpoint" in refused.value.action
    assert all(new.startswith(object_names.CHECKPOINTS) for new in written_since(store, before))
    finish(store, _inline(), restore_checkpoint=slot - 1)
    finish(store_of(inline), _inline())


def _hurting(damage: Callable[[bytes], bytes]) -> Callable[[SubtaskState], SubtaskState]:
    def hurt(state: SubtaskState) -> SubtaskState:
        return msgspec.structs.replace(state, inline=tuple(map(damage, state.inline)))

    return hurt


@pytest.mark.parametrize("restore", [None, 3], ids=["newest", "chosen"])
def test_a_newer_releases_checkpoint_is_refused_and_nothing_fenced(restore: int | None) -> None:
    objects = usual()
    newer = damaged(objects, manifest(newest(objects)), of_a_newer_release)
    store = store_of(newer)
    with pytest.raises(FormatVersionError, match=manifest(newest(objects))) as refused:
        finish(store, restore_checkpoint=restore)
    assert "use the tidelog release that wrote it" in refused.value.action
    assert written_since(store, newer) == set()
    finish(store_of(objects), restore_checkpoint=restore)


def newer_descriptor(objects: Objects) -> tuple[str, Damage]:
    return a_descriptor(objects, newest(objects))[0], of_a_newer_release


def newer_block(objects: Objects) -> tuple[str, Damage]:
    log_range = a_log_range(objects)
    # The version, behind the magic bytes: 1 becomes 2.
    return log_range.segment, flipped_at(log_range.offset + len(b"TLBK"), 3)


@pytest.mark.parametrize("part", [newer_descriptor, newer_block])
def test_what_a_newer_release_stored_is_refused_and_an_older_slot_restored(
    part: Callable[[Objects], tuple[str, Damage]],
) -> None:
    objects = usual()
    name, newer = part(objects)
    hurt = damaged(objects, name, newer)
    refuses(hurt, name, FormatVersionError, action="or restore an older checkpoint")
    comes_back(hurt, objects, name)
