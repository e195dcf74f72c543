"""The one list of what holds of every manifest and of every store.

Invariant: each check is a pure function from what was read to what is wrong with it; the
coordinator asserts the manifest's part before it writes, `tidelog inspect` checks all of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from tidelog.changelog.block import Block, open_block
from tidelog.changelog.segment import HEADER_BYTES, LogRange
from tidelog.checkpoint.descriptor import Descriptor
from tidelog.checkpoint.finding import Finding
from tidelog.checkpoint.manifest import (
    Checkpoint,
    Entry,
    InheritedState,
    MaterializationRef,
    OperatorState,
    Start,
    SubtaskState,
)
from tidelog.errors import FormatVersionError, InvariantError, TidelogError
from tidelog.ids import Generation, Slot
from tidelog.options.units import plural
from tidelog.storage import object_names


class Invariant(StrEnum):
    """The names of the invariants, as reports show them."""

    KEY_GROUPS = "key-groups"
    """The subtasks of an operator partition its key groups in order."""
    SUBTASKS = "subtasks"
    """Subtask indices are 0..n-1, operator ids unique."""
    STATE_IDS = "state-ids"
    """State ids and names are unique within an operator."""
    INHERITED = "inherited"
    """What is inherited lies in the subtask's key groups, below its first change, and a
    materialization of its own replaces it."""
    LOG = "log"
    """Log and inline blocks are contiguous from the materialization to the sequence number."""
    RANGES = "ranges"
    """Log ranges lie after a segment's header and are not empty."""
    GENERATION = "generation"
    """A checkpoint's author is that of a start slot below it."""
    CHECKPOINT_IDS = "checkpoint-ids"
    """Checkpoint ids grow from slot to slot."""
    STARTS = "starts"
    """Start slots are never missing: slot 0 is one, and every generation seen has its own."""
    OBJECTS = "objects"
    """Every named object exists with the size it needs."""
    DESCRIPTOR = "descriptor"
    """A materialization's descriptor says what the manifest says of it."""
    READABLE = "readable"
    """What is read passes its checksum and has a known format; a slot holds its own manifest."""


class Need(msgspec.Struct, frozen=True):
    """An object a checkpoint needs; `size` in bytes is exact, or the least that will do."""

    name: str
    size: int
    exact: bool


def check_manifest(checkpoint: Checkpoint) -> None:
    """Raise InvariantError when a manifest about to be written is wrong in itself."""
    violations = manifest_violations(checkpoint)
    if violations:
        first = violations[0]
        raise InvariantError(
            f"{first.where} ({first.check}, {plural(len(violations), 'violation')} in all)",
            expected=first.expected,
            found=first.found,
            action="report this as a defect; the manifest was not written, the last "
            "checkpoint is intact",
            retry_safe=False,
        )


def manifest_violations(checkpoint: Checkpoint) -> list[Finding]:
    """What is wrong with a manifest, judged by nothing but itself."""
    slot = object_names.checkpoint(checkpoint.slot)
    generation = checkpoint.author.generation
    violations = []
    if not generation < checkpoint.slot:
        violations.append(
            Finding(Invariant.GENERATION, slot, "the number of a start below it", f"{generation}")
        )
    violations += _operators_violations(slot, checkpoint.operators)
    violations += _operators_violations(f"{slot}, before the end", checkpoint.before_end)
    return violations


def _operators_violations(where: str, operators: Iterable[OperatorState]) -> list[Finding]:
    operator_ids = [operator.id for operator in operators]
    violations = list(_unique(Invariant.SUBTASKS, where, "operator ids", operator_ids))
    for operator in operators:
        operator_name = f"{where}: operator {operator.id}"
        violations += _operator_violations(operator_name, operator)
        for subtask in operator.subtasks:
            subtask_name = f"{operator_name}, subtask {subtask.index}"
            violations += _inherited_violations(subtask_name, subtask)
            for layer in subtask.inherited:
                violations += _log_violations(
                    f"{subtask_name}, inherited from {layer.subtask}", layer
                )
            violations += _log_violations(subtask_name, subtask.own)
    return violations


def _operator_violations(where: str, operator: OperatorState) -> Iterator[Finding]:
    indices = [subtask.index for subtask in operator.subtasks]
    if indices != list(range(len(indices))) or not indices:
        yield Finding(Invariant.SUBTASKS, where, "subtasks 0..n-1", f"{indices}")
    yield from _unique(Invariant.STATE_IDS, where, "state ids", [s.id for s in operator.states])
    yield from _unique(Invariant.STATE_IDS, where, "state names", [s.name for s in operator.states])
    expected = 0
    for subtask in operator.subtasks:
        first, end = subtask.first_key_group, subtask.last_key_group + 1
        if first != expected or end <= first:
            yield Finding(
                Invariant.KEY_GROUPS,
                f"{where}, subtask {subtask.index}",
                f"key groups from {expected}, one or more",
                f"{first} to {end - 1}",
            )
        expected = end
    if expected != operator.key_groups:
        yield Finding(
            Invariant.KEY_GROUPS,
            where,
            f"key groups up to {operator.key_groups - 1}",
            f"up to {expected - 1}",
        )


def _inherited_violations(where: str, state: SubtaskState) -> Iterator[Finding]:
    if state.inherited and state.materialization is not None:
        number = plural(len(state.inherited), "inherited state")
        yield Finding(Invariant.INHERITED, where, "its own materialization alone", number)
    for layer in state.inherited:
        groups = (layer.first_key_group, layer.last_key_group)
        if not state.first_key_group <= groups[0] <= groups[1] <= state.last_key_group:
            owned = f"key groups within {state.first_key_group} to {state.last_key_group}"
            yield Finding(Invariant.INHERITED, where, owned, f"{groups[0]} to {groups[1]}")
        if layer.seqno >= state.start:
            changes = f"changes below its own first, {state.start}"
            yield Finding(Invariant.INHERITED, where, changes, f"up to {layer.seqno}")


def _log_violations(where: str, state: InheritedState) -> Iterator[Finding]:
    pieces: list[LogRange | Block] = list(state.log)
    for part in state.log:
        if part.offset < HEADER_BYTES or part.length <= 0 or part.end < part.first:
            yield Finding(
                Invariant.RANGES,
                f"{where}, segment {part.segment}",
                f"bytes after the {HEADER_BYTES} of the header",
                f"{part.length} from {part.offset}, changes {part.first} to {part.end}",
            )
    for number, data in enumerate(state.inline):
        try:
            block = open_block(data, 0, f"{where}, inline block {number}")
        except TidelogError as error:
            yield unreadable(f"{where}, inline block {number}", error)
            return
        pieces.append(block)
    yield from _contiguous(where, state, sorted(pieces, key=lambda p: (p.first, p.end)))


def _contiguous(
    where: str, state: InheritedState, pieces: Sequence[LogRange | Block]
) -> Iterator[Finding]:
    """The first piece may begin before the materialization's end, the last range reach further
    than `seqno`: ranges are whole blocks of what was uploaded together.
    """
    start = state.upto
    materialized = state.materialization is not None
    expected = min(start, pieces[0].first) if pieces and materialized else start
    for piece in pieces:
        if piece.first != expected or piece.first > state.seqno:
            changes = f"changes from {expected} on, up to {state.seqno}"
            yield Finding(Invariant.LOG, where, changes, f"from {piece.first} on")
        expected = piece.end
    end = max(expected, start)
    may_exceed = bool(pieces) and isinstance(pieces[-1], LogRange)
    if end < state.seqno or (end > state.seqno and not may_exceed):
        yield Finding(Invariant.LOG, where, f"changes up to {state.seqno}", f"up to {end}")


def _unique(
    invariant: Invariant, where: str, what: str, values: Sequence[int | str]
) -> Iterator[Finding]:
    if len(set(values)) != len(values):
        yield Finding(invariant, where, f"{what} that differ", f"{list(values)}")


def slot_violations(
    entries: Mapping[Slot, Entry], unreadable: Iterable[Slot], data_objects: Iterable[str]
) -> list[Finding]:
    """What is wrong with the row of slots; an unreadable slot gets the benefit of the doubt.

    `entries` are those that could be read, by the number in their name; `data_objects` the names
    of what is stored besides slots.
    """
    violations: list[Finding] = []
    for slot, entry in sorted(entries.items()):
        where = object_names.checkpoint(slot)
        start = entries.get(Slot(entry.author.generation))
        if isinstance(entry, Start):
            if entry.author.generation != Generation(slot):
                generation = f"generation {entry.author.generation}"
                violations.append(
                    Finding(Invariant.GENERATION, where, f"generation {slot}", generation)
                )
        elif isinstance(start, Start) and start.author != entry.author:
            expected, author = f"author {start.author}", f"{entry.author}"
            violations.append(Finding(Invariant.GENERATION, where, expected, author))
    violations += _checkpoint_id_violations(entries)
    violations += _start_violations(entries, frozenset(unreadable), data_objects)
    return violations


def _checkpoint_id_violations(entries: Mapping[Slot, Entry]) -> Iterator[Finding]:
    before: Checkpoint | None = None
    for _, after in sorted(entries.items()):
        if not isinstance(after, Checkpoint):
            continue
        if before is not None and after.checkpoint_id <= before.checkpoint_id:
            yield Finding(
                Invariant.CHECKPOINT_IDS,
                object_names.checkpoint(after.slot),
                f"a checkpoint id above {before.checkpoint_id}, that of checkpoint {before.slot}",
                f"{after.checkpoint_id}",
            )
        before = after


def _start_violations(
    entries: Mapping[Slot, Entry], unreadable: frozenset[Slot], data_objects: Iterable[str]
) -> Iterator[Finding]:
    """Without the newest start a writer of an older generation would go on unfenced."""
    witnesses: dict[Generation, str] = {}
    for name in data_objects:
        generation = object_names.generation_of(name)
        if generation is not None:
            witnesses.setdefault(generation, name)
    for slot, entry in sorted(entries.items()):
        witnesses.setdefault(entry.author.generation, object_names.checkpoint(slot))
    if not witnesses:
        return
    newest, witness = max(witnesses.items())
    slot = Slot(newest)
    if slot not in unreadable and not isinstance(entries.get(slot), Start):
        actual = "no such object" if slot not in entries else "a checkpoint"
        expected = f"the start of generation {newest}, which {witness} is from"
        yield Finding(Invariant.STARTS, object_names.checkpoint(slot), expected, actual)


def direct_needs(checkpoint: Checkpoint) -> list[Need]:
    """The objects a manifest names: segments as far as its ranges reach, and descriptors."""
    segments: dict[str, int] = {}
    for _, subtask in checkpoint.stored_subtasks():
        for part in subtask.ranges:
            end = part.offset + part.length
            segments[part.segment] = max(end, segments.get(part.segment, 0))
    needs = [Need(name, size, exact=False) for name, size in segments.items()]
    for ref in checkpoint.materializations():
        needs.append(Need(ref.descriptor, ref.size, exact=True))
    return needs


def table_needs(descriptor: Descriptor) -> list[Need]:
    """The table files a descriptor names."""
    return [Need(file.object, file.size, exact=True) for file in descriptor.shared]


def object_violations(needs: Iterable[Need], sizes: Mapping[str, int]) -> list[Finding]:
    """Needed objects that are missing or too small; `sizes` are those of all stored objects."""
    violations = []
    for need in needs:
        size = sizes.get(need.name)
        expected = f"{need.size} bytes" if need.exact else f"at least {need.size} bytes"
        if size is None:
            violations.append(Finding(Invariant.OBJECTS, need.name, expected, "no such object"))
        elif size < need.size or (need.exact and size > need.size):
            violations.append(Finding(Invariant.OBJECTS, need.name, expected, f"{size} bytes"))
    return violations


def lost_objects(
    names: Iterable[str], sizes: Mapping[str, int], expected: Mapping[str, int]
) -> set[str]:
    """The names of objects that the store does not have, or has with fewer bytes than expected."""
    return {name for name in names if sizes.get(name, -1) < expected.get(name, 0)}


def descriptor_violations(
    operator: str, state: InheritedState, ref: MaterializationRef, descriptor: Descriptor
) -> list[Finding]:
    """Where a descriptor and the manifest that names it disagree."""
    facts: list[tuple[str, object, object]] = [
        ("operator", operator, descriptor.operator),
        ("subtask", state.subtask, descriptor.subtask),
        ("id", ref.id, descriptor.id),
        ("upto", ref.upto, descriptor.upto),
        ("table", state.table, descriptor.table),
        ("table_bytes", ref.table_bytes, descriptor.table_bytes),
    ]
    return [
        Finding(Invariant.DESCRIPTOR, ref.descriptor, f"{name} {expected}", f"{actual}")
        for name, expected, actual in facts
        if expected != actual
    ]


def unreadable(where: str, error: TidelogError) -> Finding:
    """The finding that an error of reading the object `where` stands for."""
    return Finding(
        Invariant.READABLE,
        where,
        error.expected or "a readable object",
        error.found or str(error),
        newer_format=isinstance(error, FormatVersionError),
    )
