"""Spark checkpoints made by hand: commits, segments, index, snapshots, as objects by name.

The model is what the state is: every changelog's name and bytes, in the order of batches.
"""

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import zstandard

from tests.support.spark_segments import NewPiece, pack_pieces, write_index
from tidelog.changelog.segment import SegmentAuthor
from tidelog.ids import Generation
from tidelog.spark.format.changelog import Record, RecordKind
from tidelog.spark.format.index import IndexDocument, IndexEntry
from tidelog.spark.format.names import IN_COMMIT, ChangelogName, roll_up_name, segment_name

RUN = "0a1b2c3d"
METADATA = b'{"id":"3f43980e-0a67-46ab-88dc-4b831f39a269"}'
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


Lineage = list[tuple[int, str]]
"""Versions and their ids."""

put, merge, delete_range = (
    partial(Record, kind) for kind in (RecordKind.PUT, RecordKind.MERGE, RecordKind.DELETE_RANGE)
)
delete = partial(Record, RecordKind.DELETE, value=None)


def changelog(records: Iterable[Record], lineage: Iterable[tuple[int, str]] = ()) -> bytes:
    """A changelog file of version 4."""
    items = [{"version": version, "checkpointUniqueId": id_} for version, id_ in lineage]
    parts = [_text(b"v4"), _text(json.dumps(items).encode())]
    for kind, key, value in records:
        parts += [bytes([kind]), struct.pack(">i", len(key)), key]
        parts += [struct.pack(">i", -1 if value is None else len(value)), value or b""]
    return zstandard.ZstdCompressor().compress(b"".join([*parts, b"\0"]))


def _text(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def content_of(name: ChangelogName, lineage: Lineage) -> bytes:
    """A changelog like no other."""
    return changelog([put(name.path.encode(), b"row" * (3 + name.version % 5))], lineage)


@dataclass
class Synthetic:
    """Builds a checkpoint batch by batch; `objects` are what is stored."""

    operators: int = 1
    partitions: int = 2
    stores: tuple[str, ...] = ("default",)
    executors: int = 2
    piece_bytes: int | None = None
    content: Callable[[ChangelogName, Lineage], bytes] = content_of
    """The bytes of a changelog, given the versions before it."""
    objects: dict[str, bytes] = field(default_factory=lambda: {"metadata": METADATA})
    model: dict[ChangelogName, bytes] = field(default_factory=dict)
    documents: dict[int, IndexDocument] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    """Bytes of each segment."""
    counter: int = 0
    committed: dict[str, dict[int, str]] = field(default_factory=dict)
    """The ids of every state store's versions."""
    _contents: dict[ChangelogName, bytes] = field(default_factory=dict)

    def content_of(self, name: ChangelogName) -> bytes:
        """The bytes of a changelog, the same ones each time."""
        before = self.committed.get(name.directory, {}).items()
        if name not in self._contents:
            lineage = [(version, id_) for version, id_ in before if version < name.version]
            self._contents[name] = self.content(name, lineage)
        return self._contents[name]

    def names(self, batch: int, attempt: str = "a") -> Iterator[ChangelogName]:
        for operator in range(self.operators):
            for partition in range(self.partitions):
                for store in self.stores:
                    number = self.stores.index(store)
                    store_id = f"{attempt}{operator}{partition}{number}-{batch + 1}"
                    yield ChangelogName(operator, partition, store, batch + 1, store_id)

    def virtual(self, batches: int) -> "Synthetic":
        """Commit that many batches with the plug-in, rolled up as it does."""
        for _ in range(batches):
            batch = self.next_batch()
            names = list(self.names(batch))
            self.commit(batch, names, self.write_segments(names))
            if batch % 10 == 9:
                self.roll_up(batch - 9)
        return self

    def stock(self, batches: int) -> "Synthetic":
        """Commit that many batches as Spark alone does: real files, no index."""
        for _ in range(batches):
            batch = self.next_batch()
            names = list(self.names(batch))
            for name in names:
                self.model[name] = self.content_of(name)
                self.objects[f"state/{name.path}"] = self.content_of(name)
            self.commit(batch, names, None)
        return self

    def packed(self, batches: int) -> "Synthetic":
        """Commit that many batches whose changelogs lie in their commits, until a roll-up."""
        for _ in range(batches):
            batch = self.next_batch()
            names, segment = list(self.names(batch)), f"{IN_COMMIT}{batch}"
            data, places = pack_pieces(self.author(0), segment, pieces_of(self, names))
            entries = {
                name: IndexEntry(name, len(self.content_of(name)), (place,))
                for name, place in zip(names, places, strict=True)
            }
            self.model |= {name: self.content_of(name) for name in names}
            self.lengths[segment] = len(data)
            self.commit(batch, names, entries)
            self.objects[f"commits/{batch}"] += b"\n" + b64encode(data)
            if batch % 10 == 9:
                for moved in range(batch - 9, batch + 1):
                    self.move_out(moved)
                self.roll_up(batch - 9)
        return self

    def move_out(self, batch: int) -> None:
        """What lies in a commit is in a segment as well, which the roll-up will name."""
        names = [entry.name for entry in self.documents[batch].entries]
        entries = self.write_segments(names)
        self.documents[batch] = self.document(batch, batch, list(entries.values()))

    def failed_attempt(self) -> "Synthetic":
        """Segments of a batch that was not committed, or lost to a retry."""
        self.write_segments(list(self.names(self.next_batch(), attempt="f")), model=False)
        return self

    def next_batch(self) -> int:
        return max((b for b in map(batch_of, self.objects) if b is not None), default=-1) + 1

    def write_segments(
        self, names: list[ChangelogName], *, model: bool = True
    ) -> dict[ChangelogName, IndexEntry]:
        """One segment per executor; each has every so-manieth changelog."""
        entries = {}
        for executor in range(self.executors):
            self.counter += 1
            segment = segment_name(RUN, str(executor), self.counter)
            author = self.author(executor)
            mine = names[executor :: self.executors]
            data, places = pack_pieces(author, segment, pieces_of(self, mine))
            self.objects[f"_tidelog/segments/{segment}"] = data
            self.lengths[segment] = len(data)
            remaining = iter(places)
            for name in mine:
                pieces = tuple(next(remaining) for _ in self.cut(self.content_of(name)))
                entries[name] = IndexEntry(name, len(self.content_of(name)), pieces)
                if model:
                    self.model[name] = self.content_of(name)
        return entries

    def author(self, executor: int) -> SegmentAuthor:
        return SegmentAuthor(Generation(1_700_000_000_000), f"{RUN}-{executor}", self.counter)

    def cut(self, content: bytes) -> list[bytes]:
        size = self.piece_bytes or len(content)
        return [content[at : at + size] for at in range(0, len(content), size)]

    def commit(
        self,
        batch: int,
        names: list[ChangelogName],
        entries: dict[ChangelogName, IndexEntry] | None,
    ) -> None:
        for name in names:
            self.committed.setdefault(name.directory, {})[name.version] = name.id
        self.objects[f"offsets/{batch}"] = offsets(batch)
        data = commit_lines(names)
        if entries is not None:
            self.documents[batch] = self.document(batch, batch, list(entries.values()))
            data += b"\n" + write_index(self.documents[batch]).encode()
        self.objects[f"commits/{batch}"] = data

    def roll_up(self, first: int) -> None:
        batches = [batch for batch in range(first, first + 10) if batch in self.documents]
        if batches:
            entries = [entry for batch in batches for entry in self.documents[batch].entries]
            document = self.document(first, first + 9, entries)
            self.objects[roll_up_object(first)] = write_index(document).encode()

    def document(self, first: int, last: int, entries: list[IndexEntry]) -> IndexDocument:
        names = {piece.segment for entry in entries for piece in entry.pieces}
        lengths = {name: self.lengths.get(name, 0) for name in names}
        return IndexDocument(first, last, lengths, tuple(entries))

    def snapshots(self, version: int) -> "Synthetic":
        """A snapshot of every store at a version."""
        for name in self.names(version - 1):
            self.objects[f"state/{name.directory}/{version}_{name.id}.zip"] = b"zip"
        return self

    def purge(self, until: int) -> "Synthetic":
        """Spark forgets the batches below."""
        for name in [n for n in self.objects if (b := batch_of(n)) is not None and b < until]:
            del self.objects[name]
        return self

    def without_line(self, batch: int) -> "Synthetic":
        """The commit of a batch has lost its index."""
        self.objects[f"commits/{batch}"] = without_line(self.objects[f"commits/{batch}"])
        return self

    def without_segments(self, batch: int) -> "Synthetic":
        """All segments that a batch wrote are gone."""
        for segment in self.documents[batch].segments:
            del self.objects[f"_tidelog/segments/{segment}"]
        return self

    def segments(self) -> list[str]:
        return sorted(name for name in self.objects if name.startswith("_tidelog/segments/"))


def without_line(commit: bytes) -> bytes:
    """A commit without its index; a segment within it stays."""
    lines = commit.split(b"\n")
    return b"\n".join([*lines[:2], b"", *lines[3:]] if len(lines) > 3 else lines[:2])


def pieces_of(synthetic: Synthetic, names: list[ChangelogName]) -> Iterator[NewPiece]:
    """What a writer hands over for these changelogs."""
    for name in names:
        parts = synthetic.cut(synthetic.content_of(name))
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            yield NewPiece(name, number, len(parts) if last else 0, part)


def commit_lines(names: list[ChangelogName]) -> bytes:
    """What Spark writes for a batch with these changelogs."""
    ids: dict[str, list[list[str]]] = {}
    for name in names:
        partitions = ids.setdefault(str(name.operator), [])
        while len(partitions) <= name.partition:
            partitions.append([])
        partitions[name.partition].append(name.id)
    body = {"nextBatchWatermarkMs": 0, "stateUniqueIds": ids}
    return b"v2\n" + json.dumps(body, separators=(",", ":")).encode()


def offsets(batch: int, provider: str = ROCKSDB) -> bytes:
    metadata = {
        "batchWatermarkMs": 0,
        "batchTimestampMs": 1_700_000_000_000 + batch * 1000,
        "conf": {PROVIDER: provider},
    }
    return b"v1\n" + json.dumps(metadata).encode() + b"\n" + str(batch).encode()


def roll_up_object(first: int) -> str:
    return f"_tidelog/index/{roll_up_name(first)}"


def batch_of(name: str) -> int | None:
    """The batch of a commit or offsets object."""
    folder, _, leaf = name.partition("/")
    return int(leaf) if folder in {"commits", "offsets"} and leaf.isdecimal() else None
