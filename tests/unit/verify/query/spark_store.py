"""Checkpoints of Spark queries as Spark and the plug-in write them, made without either.

Changelogs are of Spark's version 4, snapshots are RocksDB databases with their SST files beside
them, and the model knows what every version of every state store holds.
"""

import io
import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import google_crc32c
from rocksdict import Checkpoint, Options, Rdict

from tests.unit.spark.synthetic import RUN, Synthetic, changelog, delete, put
from tidelog.spark.format.changelog import Record, RecordKind
from tidelog.spark.format.names import ChangelogName, segment_name

Rows = dict[bytes, bytes]


@dataclass
class SparkStore:
    """Grows batch by batch; `objects` are what is stored."""

    work: Path
    directories: tuple[str, ...] = ("0/0", "0/1")
    models: dict[str, Rows] = field(default_factory=dict)
    versions: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Of every state store, in order."""
    lineage_from: dict[str, int] = field(default_factory=dict)
    changelogs: dict[ChangelogName, bytes] = field(default_factory=dict)
    made: Synthetic = field(init=False)

    def __post_init__(self) -> None:
        self.made = Synthetic(executors=1, content=lambda name, _: self.changelogs[name])

    @property
    def objects(self) -> dict[str, bytes]:
        return self.made.objects

    @property
    def next_batch(self) -> int:
        return max(map(len, self.versions.values()), default=0)

    def batches(self, number: int, **how: bool) -> "SparkStore":
        """Batches that change a few rows of every store."""
        for _ in range(number):
            self.batch({each: self.changes(each) for each in self.directories}, **how)
        return self

    def changes(self, directory: str) -> list[Record]:
        """Some new rows, a changed one, a deleted one."""
        batch = self.next_batch
        rows = [put(f"{directory} {batch} {n}".encode(), b"x" * (batch + n)) for n in range(3)]
        old = sorted(self.models.get(directory, {}))[:2]
        return [*rows, *(put(key, b"changed %d" % batch) for key in old[1:]), *map(delete, old[:1])]

    def batch(self, changes: Mapping[str, list[Record]], *, virtual: bool = True) -> None:
        """Commit a batch; with `virtual` its changelogs go to a segment, else to files."""
        batch, names = self.next_batch, []
        for directory, records in changes.items():
            versions = self.versions.setdefault(directory, [])
            version = batch + 1, f"a{directory.replace('/', '.')}-{batch + 1}"
            since = self.lineage_from.get(directory, 0)
            lineage = [each for each in versions if each[0] >= since]
            name = ChangelogName.of(directory, *version)
            names.append(name)
            self.changelogs[name] = changelog(records, lineage)
            versions.append(version)
            self.models[directory] = applied(self.models.get(directory, {}), records)
        if not virtual:
            self.objects.update({f"state/{name.path}": self.changelogs[name] for name in names})
            self.made.commit(batch, names, None)
            return
        self.made.counter = batch - 1
        self.made.commit(batch, names, self.made.write_segments(names))
        if batch % 10 == 9:
            self.made.roll_up(batch - 9)

    def snapshot(self, *directories: str, rows: Rows | None = None) -> "SparkStore":
        """Snapshots of the newest version; with `rows` they hold these instead."""
        for directory in directories or self.directories:
            version, id_ = self.versions[directory][-1]
            held = self.models[directory] if rows is None else rows
            name = f"state/{directory}/{version}_{id_}.zip"
            self.objects.update(snapshot_files(self.work, directory, name, held))
            self.lineage_from[directory] = version
        return self

    def purge(self, until: int) -> "SparkStore":
        """Spark forgets the batches below; commits stay until they are rolled up."""
        rolled_up = self.next_batch - self.next_batch % 10
        for batch in range(until):
            self.objects.pop(f"offsets/{batch}", None)
            if batch < rolled_up:
                self.objects.pop(f"commits/{batch}", None)
        return self

    def clean_up(self, directory: str, below: int) -> "SparkStore":
        """Spark deletes the changelogs and snapshots of a store below a version."""
        for version, id_ in self.versions[directory]:
            if version < below:
                self.objects.pop(f"state/{directory}/{version}_{id_}.zip", None)
                self.objects.pop(segment_of(version - 1), None)
                document = self.made.documents[version - 1]
                kept = [e for e in document.entries if e.name.directory != directory]
                self.made.documents[version - 1] = replace(document, entries=tuple(kept))
        for first in range(0, self.next_batch - 9, 10):
            self.made.roll_up(first)
        return self

    def with_checksums(self) -> "SparkStore":
        """Hadoop's checksum files beside everything, Spark's beside snapshots."""
        for name, data in list(self.objects.items()):
            if name.endswith(".zip"):
                self.objects[f"{name}.crc"] = spark_checksum(data)
        for name, data in list(self.objects.items()):
            folder, slash, leaf = name.rpartition("/")
            self.objects[f"{folder}{slash}.{leaf}.crc"] = hadoop_checksum(data)
        return self


def segment_of(batch: int) -> str:
    """The segment of a batch."""
    return f"_tidelog/segments/{segment_name(RUN, '0', batch)}"


def applied(rows: Rows, records: Iterable[Record]) -> Rows:
    """What Spark's store holds after a batch."""
    after = dict(rows)
    for kind, key, value in records:
        if kind is RecordKind.PUT:
            after[key] = value or b""
        elif kind is RecordKind.MERGE:
            after[key] = after.get(key, b"") + (value or b"")
        elif kind is RecordKind.DELETE:
            after.pop(key, None)
        else:
            after = {k: v for k, v in after.items() if not key <= k < (value or b"")}
    return after


def snapshot_files(work: Path, directory: str, name: str, rows: Rows) -> dict[str, bytes]:
    """The zip file of a snapshot, and the SST files it names."""
    shutil.rmtree(work, ignore_errors=True)
    database = Rdict(str(work / "database"), Options(raw_mode=True))
    for key, value in rows.items():
        database[key] = value
    database.flush()
    Checkpoint(database).create_checkpoint(str(work / "checkpoint"))
    database.close()
    objects, ssts, packed = {}, [], io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((work / "checkpoint").iterdir()):
            if path.suffix == ".sst":
                unique = f"{path.stem}-{zlib.crc32(name.encode()):08x}.sst"
                objects[f"state/{directory}/SSTs/{unique}"] = path.read_bytes()
                size = path.stat().st_size
                file = {"localFileName": path.name, "dfsSstFileName": unique, "sizeBytes": size}
                ssts.append(file)
            else:
                archive.writestr(path.name, path.read_bytes())
        metadata = {"sstFiles": ssts, "numKeys": len(rows), "columnFamilyMapping": {}}
        archive.writestr("metadata", b"v1\n" + json.dumps(metadata).encode())
    return {**objects, name: packed.getvalue()}


def spark_checksum(data: bytes) -> bytes:
    value = struct.unpack(">i", struct.pack(">I", google_crc32c.value(data)))[0]
    return json.dumps({"algorithm": "CRC32C", "value": value, "mainFileSize": len(data)}).encode()


def hadoop_checksum(data: bytes) -> bytes:
    sums = [zlib.crc32(data[at : at + 512]) for at in range(0, len(data), 512)]
    return b"crc\0" + struct.pack(">I", 512) + b"".join(each.to_bytes(4, "big") for each in sums)
