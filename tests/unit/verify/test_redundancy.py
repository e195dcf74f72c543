"""A materialization that is wrong, though every checksum is right, contradicts the older one."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.damage import checkpoint_in, damaged, flipped_at
from tests.support.jobs import every_kind, filled
from tests.unit.verify.stores import (
    Objects,
    assert_sound,
    overlapping,
    tiny,
    verdicts,
    verified,
    with_descriptor,
    with_rows,
)
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.descriptor import TableObject, decode_descriptor
from tidelog.storage import object_names
from tidelog.storage.document import checksum
from tidelog.table.frame import Row
from tidelog.table.rocksdb_factory import RocksTableFactory

HISTORY = (4).to_bytes(2, "big")
"""The state of `filled` that lists elements."""
LOG_ALONE = [f"checkpoints/{slot:08d}.json" for slot in (1, 2)]
"""The checkpoints of `tiny` without a materialization of count-1."""
FIRST, SECOND = (f"materializations/00000000/count-1-{n}.json" for n in (1, 2))


def changed(rows: list[Row]) -> list[Row]:
    (key, value), *rest = rows
    return [(key, bytes([value[0] ^ 1]) + value[1:]), *rest]


@pytest.mark.parametrize("wrong", [changed, lambda rows: rows[1:]], ids=["changed", "dropped"])
def test_a_wrong_materialization_is_found_though_its_checksums_are_right(wrong: Any) -> None:
    report = verified(with_rows(tiny(), SECOND, wrong))
    (problem,) = report.problems
    assert problem.check == "redundancy" and problem.where == SECOND
    assert problem.partitions == ("count-1",) and problem.unusable == ()
    assert "key groups" in problem.found and "one of the two is wrong" in str(problem.action)
    # The log of slots 7 and 8 writes the row again; one of the first materialization is confirmed
    # by the log alone, the others may as well be the wrong ones.
    assert {6} <= set(problem.doubtful) <= {4, 5, 6}
    assert {c.checkpoint for c in report.checkpoints if c.different} == {6}
    assert not report.passed
    doubtful = {n for n, verdict in verdicts(report).items() if verdict != "sound"}
    assert doubtful == set(problem.doubtful)


def test_without_a_third_way_either_of_the_two_may_be_wrong() -> None:
    later = {n: d for n, d in tiny().items() if n not in LOG_ALONE}
    (problem,) = verified(with_rows(later, SECOND, changed)).problems
    assert problem.doubtful == (3, 4, 5, 6)


def test_rows_that_were_only_laid_out_anew_contradict_nothing() -> None:
    assert_sound(verified(with_rows(tiny(), SECOND, lambda rows: rows)))


def test_a_wrong_first_materialization_contradicts_the_log_it_was_made_of() -> None:
    report = verified(with_rows(tiny(), FIRST, changed))
    (problem,) = report.problems
    assert problem.where == FIRST and "no materialization of checkpoint 2" in problem.expected
    assert 3 in problem.doubtful
    assert verdicts(report)[8] == "sound"


def test_a_damaged_way_is_told_by_the_partition_it_belongs_to() -> None:
    objects = overlapping()
    # The newest slot in which the log is cut, and what only the way from the older one needs.
    slot, part = next(
        (n, part)
        for n in range(8, 1, -1)
        for part in reversed(log_of_slot(n - 1, "count", 1))
        if part.segment not in segments_of_slot(n)
    )
    assert "count-1" not in [partition for partition, _, _ in verified(objects, slot).unchecked]
    hurt = damaged(objects, part.segment, flipped_at(part.offset + 50))  # in a block
    report = verified(hurt, slot)
    assert report.passed
    reasons = {reason for partition, reason, _ in report.unchecked if partition == "count-1"}
    assert reasons == {"only one materialization: the way from the older one is damaged"}


def segments_of_slot(slot: int) -> set[str]:
    """The segments that any partition of `overlapping` needs."""
    subtasks = checkpoint_in(overlapping(), slot).subtasks()
    return {part.segment for _, state in subtasks for part in state.ranges}


def log_of_slot(slot: int, operator: str, index: int) -> tuple[LogRange, ...]:
    """The log of one partition of `overlapping`."""
    states = checkpoint_in(overlapping(), slot).subtasks()
    (log,) = (s.log for o, s in states if (o.id, s.index) == (operator, index))
    return log


def test_a_wrong_rocksdb_materialization_is_found(tmp_path: Path) -> None:
    objects = overlapping(every_kind)
    name = "materializations/00000000/process-1-1.json"
    users = {slot for slot in range(1, 9) if name in descriptors_of(objects, slot)}
    report = verified(with_other_table(objects, name, tmp_path))
    assert {(p.check, p.where) for p in report.problems} == {("redundancy", name)}
    doubtful = {slot for problem in report.problems for slot in problem.doubtful}
    assert doubtful >= users and users


def descriptors_of(objects: Objects, slot: int) -> set[str]:
    refs = (state.materialization for _, state in checkpoint_in(objects, slot).subtasks())
    return {ref.descriptor for ref in refs if ref is not None}


def with_other_table(objects: Objects, name: str, directory: Path) -> Objects:
    """The objects with one row less in a RocksDB materialization, every checksum right."""
    descriptor = decode_descriptor(objects[name], name)
    table_directory = directory / "table"
    table_directory.mkdir()
    for file in descriptor.shared:
        (table_directory / file.name).write_bytes(objects[file.object])
    for private, content in descriptor.private.items():
        (table_directory / private).write_bytes(content)
    table = RocksTableFactory().restore(table_directory)
    # No later change touches an element of a list.
    key = next(key for key, _ in table.scan(b"", None) if key[2:4] == HISTORY)
    table.write([key], [None])
    table.prepare_snapshot()
    files = table.freeze(directory / "snapshot")()
    table.close()
    added, shared, private_files = {}, [], {}
    for each in files:
        data = each.path.read_bytes()
        if not each.shared:
            private_files[each.name] = data
            continue
        label = f"{hashlib.blake2b(data, digest_size=16).hexdigest()}-process-1-9"
        stored = object_names.table_file(descriptor.generation, label)
        added[stored] = data
        shared.append(TableObject(each.name, stored, len(data), checksum(data)))
    other = msgspec.structs.replace(descriptor, shared=tuple(shared), private=private_files)
    return with_descriptor({**objects, **added}, name, other)


def test_a_table_file_under_the_name_of_another_is_found_though_their_crcs_are_equal() -> None:
    objects = filled()
    name = "materializations/00000004/process-1-1.json"
    descriptor = decode_descriptor(objects[name], name)
    one, other = descriptor.shared[:2]
    said = tuple(
        msgspec.structs.replace(file, size=one.size, crc32c=one.crc32c) if file is other else file
        for file in descriptor.shared
    )
    renamed = {**objects, other.object: objects[one.object]}
    hurt = with_descriptor(renamed, name, msgspec.structs.replace(descriptor, shared=said))
    (problem,) = verified(hurt).problems
    assert problem.where == other.object
    assert problem.expected == "the content whose hash is in its name"
