"""Damage done to the objects of a store, as disks, networks and newer releases do it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tidelog.checkpoint.descriptor import Descriptor, decode_descriptor
from tidelog.checkpoint.manifest import Checkpoint, decode_entry
from tidelog.checkpoint.retention import checkpoint_objects
from tidelog.ids import Slot
from tidelog.storage import object_names
from tidelog.storage.document import checksum

Objects = Mapping[str, bytes]
Damage = Callable[[bytes], bytes | None]


def truncated(data: bytes) -> bytes:
    """The last third is lost."""
    return data[: len(data) * 2 // 3]


def cut(data: bytes) -> bytes:
    """The last byte is lost."""
    return data[:-1]


def emptied(data: bytes) -> bytes:
    return b""


def lengthened(data: bytes) -> bytes:
    """Some bytes come again."""
    return data + data[:7]


def flipped_at(at: int, bit: int = 1) -> Callable[[bytes], bytes]:
    """One bit of a byte is another."""
    return lambda data: data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def flipped(data: bytes) -> bytes:
    return flipped_at(len(data) // 2)(data)


def missing(data: bytes) -> None:
    """Nothing is left."""


def of_a_newer_release(data: bytes) -> bytes:
    """A document of the next format version, its checksum right."""
    body = bytes(msgspec.json.decode(data, type=dict[str, msgspec.Raw])["body"])
    newer = body.replace(b'"format":1', b'"format":2')
    assert newer != body
    return b'{"body":' + newer + b',"crc32c":"' + checksum(newer).encode() + b'"}\n'


def damaged(objects: Objects, name: str, damage: Damage) -> dict[str, bytes]:
    data = damage(objects[name])
    rest = {other: content for other, content in objects.items() if other != name}
    return rest if data is None else {**rest, name: data}


def damage_file(path: Path, damage: Damage) -> None:
    data = damage(path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


def checkpoint_in(objects: Objects, slot: int) -> Checkpoint:
    name = object_names.checkpoint(Slot(slot))
    entry = decode_entry(objects[name], name)
    assert isinstance(entry, Checkpoint)
    return entry


def needs(objects: Objects, slot: int) -> set[str]:
    """The data objects that a checkpoint needs."""
    names = checkpoint_objects(checkpoint_in(objects, slot))
    descriptors = [name for name in names if name.startswith(object_names.MATERIALIZATIONS)]
    for name in descriptors:
        names |= decode_descriptor(objects[name], name).shared_bytes.keys()
    return names


def a_descriptor(objects: Objects, slot: int) -> tuple[str, Descriptor]:
    """A descriptor that a checkpoint names, with table files."""
    for _, subtask in checkpoint_in(objects, slot).subtasks():
        if subtask.materialization is not None:
            name = subtask.materialization.descriptor
            descriptor = decode_descriptor(objects[name], name)
            if descriptor.shared:
                return name, descriptor
    raise AssertionError("the checkpoint was meant to have a materialization")


def a_table_file(objects: Objects, slot: int) -> str:
    """A table file that a checkpoint needs."""
    return a_descriptor(objects, slot)[1].shared[0].object


def a_segment(objects: Objects, slot: int) -> str:
    """A segment of whose middle, where `flipped` strikes, a checkpoint needs the log."""
    for _, subtask in checkpoint_in(objects, slot).subtasks():
        for part in subtask.log:
            if part.offset <= len(objects[part.segment]) // 2 < part.offset + part.length:
                return part.segment
    raise AssertionError("some range was meant to cover the middle of its segment")


def last_segment(objects: Objects, slot: int) -> str:
    """The newest segment that a checkpoint names."""
    return max(part.segment for _, s in checkpoint_in(objects, slot).subtasks() for part in s.log)
