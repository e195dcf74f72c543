"""What follows changes from row to row answers what a scan of all rows would.

Paths that begin at one table make their own states, whatever log they share.
"""

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.jobs import store_of, virtual_effects
from tidelog.changelog.block import SealedBlock, seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import BlockGroup, LogRange, SegmentAuthor, pack
from tidelog.checkpoint.manifest import StateInfo, SubtaskState
from tidelog.engines import Workspace
from tidelog.ids import Generation, KeyGroup, SeqNo, SubtaskId
from tidelog.state.key_groups import KeyGroupRange, encode_key, key_group
from tidelog.storage import object_names
from tidelog.table.memory import MemoryTable
from tidelog.verify.fingerprint import Fingerprint, fingerprint
from tidelog.verify.job.paths import PathStep, RestorePath
from tidelog.verify.job.replay import PartitionUnit, PathBase
from tidelog.verify.job.rows import RowScan
from tidelog.verify.job.table import ScannedTable
from tidelog.verify.results import PathResult

GROUPS = 4


def row_key(number: int, astray: bool) -> bytes:
    key = encode_key(number)
    group = (key_group(key, GROUPS) + astray) % GROUPS
    return group.to_bytes(2, "big") + b"\0\3" + key


KEYS = st.builds(row_key, st.integers(0, 60), st.integers(0, 9).map(lambda n: n == 0))
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=12)
ROWS = st.dictionaries(KEYS, st.binary(max_size=3), min_size=20, max_size=60)


def empty() -> RowScan:
    owned = KeyGroupRange(KeyGroup(0), KeyGroup(2))
    return RowScan(GROUPS, owned, [StateInfo(3, "state", "value", ())])


def expected(rows: dict[bytes, bytes]) -> tuple[object, ...]:
    scan = empty()
    scan.take(sorted(rows.items()))
    return seen(scan)


def seen(scan: RowScan) -> tuple[object, ...]:
    return {group: each for group, each in scan.groups.items() if each.rows}, scan.violations


def columns(changes: dict[bytes, bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    keys = sorted(changes)
    return keys, [changes[key] for key in keys]


def after(rows: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in {**rows, **changes}.items() if value is not None}


@given(ROWS, st.lists(st.tuples(CHANGES, CHANGES, st.booleans()), max_size=5))
def test_rows_and_misfits_are_those_of_a_scan_after_any_changes(
    rows: dict[bytes, bytes],
    steps: list[tuple[dict[bytes, bytes | None], dict[bytes, bytes | None], bool]],
) -> None:
    table = MemoryTable()
    table.load(*columns(dict(rows)))
    scanned = ScannedTable(table, empty())
    for applied, tried, asked in steps:
        scanned.apply(*columns(applied))
        rows = after(rows, applied)
        if asked:
            assert seen(scanned.rows()) == expected(rows)
        assert seen(scanned.changed(*columns(tried))) == expected(after(rows, tried))


Batch = dict[bytes, bytes | None]
BATCHES = st.lists(CHANGES.filter(bool), min_size=2, max_size=8)


class Log:
    """A history as blocks, two of them in each segment."""

    def __init__(
        self, generation: int, batches: Sequence[Batch], objects: dict[str, bytes]
    ) -> None:
        self.batches = batches
        self.blocks: list[SealedBlock] = []
        for batch in batches:
            first, keys = self.blocks[-1].end if self.blocks else 0, sorted(batch)
            self.blocks.append(seal(ChangeBatch(SeqNo(first), keys, [batch[key] for key in keys])))
        self.ranges: list[LogRange] = []
        for number in range(0, len(batches), 2):
            author = SegmentAuthor(Generation(generation), "p", number)
            name = object_names.segment(author.generation, author.process, author.counter)
            group = BlockGroup("op", 0, tuple(self.blocks[number : number + 2]))
            packed = pack(author, name, [group])
            self.ranges += packed.ranges
            objects[name] = packed.data

    def path(self, number: int, batches: int, inline: bool) -> RestorePath:
        """To the state after so many batches; half a segment lies in the manifest, or beyond."""
        parts: list[LogRange | bytes] = list(self.ranges[: batches // 2])
        if batches % 2:
            parts.append(self.blocks[batches - 1].data if inline else self.ranges[batches // 2])
        seqno = self.blocks[batches - 1].end if batches else SeqNo(0)
        return RestorePath(number, False, tuple(map(PathStep, parts)), seqno)

    def groups(self, batches: int) -> dict[int, Fingerprint]:
        """Fingerprints of the rows after so many batches."""
        rows: dict[bytes, bytes] = {}
        for batch in self.batches[:batches]:
            rows = after(rows, batch)
        by_group: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        for key, value in rows.items():
            by_group[key[1]].append((key, value))
        return {group: fingerprint(found) for group, found in by_group.items()}


def replayed(paths: Sequence[RestorePath], objects: dict[str, bytes]) -> list[PathResult]:
    state = SubtaskState(0, 0, GROUPS - 1, SeqNo(0), "memory")
    base = PathBase("op", state, {}, GROUPS, (StateInfo(3, "state", "value", ()),), tuple(paths))
    with tempfile.TemporaryDirectory() as directory:
        workspace = Workspace(store_of(objects), virtual_effects(), Path(directory))
        found = asyncio.run(PartitionUnit(SubtaskId("op", 0), (base,)).run(workspace)).paths
    return sorted(found, key=lambda path: path.partition)


@given(BATCHES, BATCHES, st.integers(0, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_every_path_makes_the_state_of_its_checkpoint_unless_what_it_needs_is_lost(
    batches: list[Batch], others: list[Batch], fork: int, data: st.DataObject
) -> None:
    objects: dict[str, bytes] = {}
    trunk = Log(0, batches, objects)
    # A job that was set back goes on from there, and what came after is of nobody's history.
    resumed = Log(5, [*batches[: 2 * min(fork, len(batches) // 2)], *others], objects)
    ends = [
        (log, end, inline)
        for log in (trunk, resumed)
        for end in range(len(log.batches) + 1)
        for inline in (True, False)
    ]
    chosen = data.draw(st.lists(st.sampled_from(ends), min_size=1, max_size=8))
    paths = [log.path(n, end, inline) for n, (log, end, inline) in enumerate(chosen)]
    lost = data.draw(st.none() | st.sampled_from(sorted(objects)))
    left = {name: content for name, content in objects.items() if name != lost}
    for path, result, (log, end, _) in zip(paths, replayed(paths, left), chosen, strict=True):
        needed = {step.log.segment for step in path.steps if isinstance(step.log, LogRange)}
        assert (result.error is not None) is (lost in needed)
        if result.error is None:
            assert {g: each for g, each in result.groups.items() if each.rows} == log.groups(end)


def test_a_path_without_a_part_of_its_log_cannot_be_replayed() -> None:
    objects: dict[str, bytes] = {}
    log = Log(0, [{b"\0\1\0\3" + bytes([n]): b"v"} for n in range(6)], objects)
    whole = log.path(0, 6, inline=False)
    torn = RestorePath(1, False, whole.steps[:1] + whole.steps[2:], whole.seqno)
    found = replayed([whole, torn], objects)
    assert found[0].error is None
    assert found[1].error is not None and "expected" in str(found[1].error)
