"""A job that does not fit its store, by format, shape or state, is refused and changes nothing."""

from collections.abc import Callable

import pytest

from tests.faults.counting import (
    Objects,
    finish,
    manifest,
    newest,
    newest_without,
    usual,
    written_since,
)
from tests.support.damage import Damage, a_descriptor, checkpoint_in, damaged, of_a_newer_release
from tests.support.jobs import store_of
from tidelog.errors import (
    FormatVersionError,
)
from tidelog.storage import object_names


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
