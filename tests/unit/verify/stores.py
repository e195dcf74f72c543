"""Stores to verify, and how tests verify them: in this process, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from tests.support.damage import checkpoint_in
from tests.support.faults import Fault, FaultKind, FaultyStore
from tests.support.jobs import config, contents, run, store_of, virtual_effects, word_count
from tidelog import Checkpoint, Job, JobRunner
from tidelog.checkpoint.descriptor import Descriptor, decode_descriptor, encode_descriptor
from tidelog.checkpoint.manifest import MaterializationRef, decode_entry, encode_entry
from tidelog.engines import LocalEngine, WorkerConfig
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore
from tidelog.storage.port import ObjectStore
from tidelog.table.frame import Row, decode_rows, encode_rows
from tidelog.verify.results import Choice
from tidelog.verify.verification import VerifyReport, verify

Objects = Mapping[str, bytes]

LONG_WORDS = [f"{number % 60:02d}-" + "x" * 3000 for number in range(400)]
"""Large enough for tables that are stored in files of their own."""


def verified(objects: Objects, chosen: Choice = "all") -> VerifyReport:
    """The report on a store with these objects."""
    return report_on(store_of(objects), chosen)


def report_on(store: ObjectStore, chosen: Choice = "all") -> VerifyReport:
    """The report on a store."""
    return asyncio.run(verify(store, engine_on(store), chosen=chosen))


def engine_on(store: ObjectStore) -> LocalEngine:
    """The engine of this process."""
    return LocalEngine(store, virtual_effects(), WorkerConfig(store.url), jobs=1)


class CountingStore(MemoryStore):
    """Counts how often each object is read, and how much of it."""

    def __init__(self) -> None:
        super().__init__("memory://counting")
        self.reads: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = await super().get(name, start, length)
        self.reads[name] += 1
        self.bytes[name] += len(data)
        return data


S = TypeVar("S", bound=ObjectStore)


def with_objects(store: S, objects: Objects) -> S:
    """A store that behaves in some way, with these objects in it."""

    async def put() -> None:
        for name, data in objects.items():
            await store.put(name, data)

    asyncio.run(put())
    return store


def verdicts(report: VerifyReport) -> dict[int, str]:
    return {checkpoint.checkpoint: checkpoint.verdict for checkpoint in report.checkpoints}


def with_verdict(report: VerifyReport, verdict: str) -> set[int]:
    return {each.checkpoint for each in report.checkpoints if each.verdict == verdict}


def assert_sound(report: VerifyReport) -> None:
    """There are checkpoints, all of them sound, and nothing else is wrong."""
    assert report.problems == () and report.passed
    assert set(verdicts(report).values()) == {"sound"}


@cache
def small() -> Objects:
    """Tables in memory with files of their own, several materializations: quick to restore."""
    store = MemoryStore()
    run(store, word_count(LONG_WORDS), config(table="memory", retain=4))
    objects = contents(store)
    assert any(name.startswith(object_names.TABLES) for name in objects)
    return objects


@cache
def tiny() -> Objects:
    """All rows of the tables lie in the descriptors; ten checkpoints."""
    store = MemoryStore()
    run(store, word_count(), config(table="memory", retain=10))
    return contents(store)


@cache
def overlapping(job_of: Callable[[], Job] = word_count) -> Objects:
    """Tables take so long to upload that a checkpoint falls into it: a second way is always there.

    Ten checkpoints, RocksDB tables.
    """
    memory, effects = MemoryStore(), virtual_effects()
    late = Fault(
        FaultKind.DELAY, operation="put", prefix=object_names.MATERIALIZATIONS, seconds=1.2
    )
    store = FaultyStore(memory, [late], effects.clock)
    asyncio.run(JobRunner(job_of(), store, config(retain=10), effects).run())
    return contents(memory)


def needed_by(objects: Objects, name: str) -> set[int]:
    """The checkpoints that need an object, read from the manifests alone."""
    slots = {slot for n in objects if (slot := object_names.slot_of(n)) is not None}
    needed = set()
    for slot in slots:
        entry = decode_entry(objects[object_names.checkpoint(slot)], "")
        if isinstance(entry, Checkpoint):
            names = {object_names.checkpoint(slot)}
            for _, state in entry.subtasks():
                names |= {part.segment for part in state.log}
                if state.materialization is not None:
                    descriptor = state.materialization.descriptor
                    names.add(descriptor)
                    shared = decode_descriptor(objects[descriptor], "").shared
                    names |= {file.object for file in shared}
            if name in names:
                needed.add(int(slot))
    return needed


def with_manifest(objects: Objects, slot: int, change: Callable[[Checkpoint], Any]) -> Objects:
    """The objects with another manifest in a slot, its checksum right."""
    name = f"checkpoints/{slot:08d}.json"
    return {**objects, name: encode_entry(change(checkpoint_in(objects, slot)))}


def with_subtask(checkpoint: Checkpoint, operator: str, index: int, **changes: Any) -> Checkpoint:
    """A checkpoint with one subtask changed."""
    replace = msgspec.structs.replace
    operators = tuple(
        replace(
            each,
            subtasks=tuple(
                replace(state, **changes) if (each.id, state.index) == (operator, index) else state
                for state in each.subtasks
            ),
        )
        for each in checkpoint.operators
    )
    return replace(checkpoint, operators=operators)


def with_rows(
    objects: Objects, descriptor_name: str, change: Callable[[list[Row]], list[Row]]
) -> Objects:
    """The objects with other rows in a materialization, every checksum and length right."""
    descriptor = decode_descriptor(objects[descriptor_name], descriptor_name)
    assert not descriptor.shared, "the rows were meant to lie in the descriptor"
    parts = {n: decode_rows(d, n) for n, d in descriptor.private.items()}  # type: ignore[arg-type]
    index = [name.decode() for name, _ in parts["INDEX"]]
    rows = change([row for name in index for row in parts[name]])
    name = f"{0:032x}.rows"
    private = {name: encode_rows(rows), "INDEX": encode_rows([(name.encode(), b"")])}
    written = msgspec.structs.replace(descriptor, private=private)
    return with_descriptor(objects, descriptor_name, written)


def with_descriptor(objects: Objects, name: str, descriptor: Descriptor) -> Objects:
    """The objects with another descriptor, which all manifests name as it is."""
    data = encode_descriptor(descriptor)
    changed = {**objects, name: data}

    def named(ref: MaterializationRef | None) -> MaterializationRef | None:
        if ref is None or ref.descriptor != name:
            return ref
        return msgspec.structs.replace(ref, size=len(data), table_bytes=descriptor.table_bytes)

    for slot in (s for n in objects if (s := object_names.slot_of(n)) is not None):
        entry = decode_entry(objects[object_names.checkpoint(slot)], "")
        if isinstance(entry, Checkpoint):
            for operator, state in entry.subtasks():
                ref = named(state.materialization)
                entry = with_subtask(entry, operator.id, state.index, materialization=ref)
            before_end = msgspec.structs.replace(entry, operators=entry.before_end)
            for operator, state in before_end.subtasks():
                ref = named(state.materialization)
                before_end = with_subtask(before_end, operator.id, state.index, materialization=ref)
            entry = msgspec.structs.replace(entry, before_end=before_end.operators)
            changed[object_names.checkpoint(slot)] = encode_entry(entry)
    return changed
