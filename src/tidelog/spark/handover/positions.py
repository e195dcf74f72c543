"""Where a query reads on: positions of a job's sources in terms of Spark's own sources.

Invariant: together with what the job had read, the query reads every record once. What cannot be
said in Spark's terms is refused.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tidelog.connectors.files.compressed import MEMBERS, CompressedText
from tidelog.connectors.files.line_reader import PlainText
from tidelog.connectors.files.source import InputFile, failures
from tidelog.connectors.kafka.reading.partitions import EARLIEST, TopicPartition
from tidelog.errors import ConfigError, RestoreError, StorageError
from tidelog.spark.handover.begin import Origin, begin
from tidelog.storage.local_files import make_directory, sync_directory
from tidelog.storage.open import StoreAccess

if TYPE_CHECKING:
    from pyspark.sql import Column

_FROM_THE_OLDEST: Final = -2
"""What stands for the oldest message in Spark's `startingOffsets`."""
_LEGAL: Final = "/-._~!$&'()*+,;=:@"
"""ASCII characters that the path of a Java URI has as they are, besides letters and digits."""
_CHUNK_BYTES: Final = 1 << 20


def starting_offsets(
    savepoint: str,
    source: str,
    *,
    checkpoint: str,
    partitions: Mapping[str, int] | None = None,
    endpoint: str | None = None,
    encryption_key: str | None = None,
) -> str:
    """Offsets of a job's `KafkaSource`, for option `startingOffsets` of Spark's Kafka source.

    `savepoint` is `URL@NAME`, `source` the source's name in the job, and `checkpoint` the query's
    `checkpointLocation`: once a batch is committed there, what it has kept is the answer. Spark
    wants an offset for every partition. `partitions` has the number of partitions by topic: those
    that the job has stored nothing of begin at their oldest message. `endpoint` is that of an S3
    server, and `encryption_key` says where the key of an encrypted store is.

    Raises ConfigError, RestoreError for a source that is not Kafka, and what the stores raise.
    """
    handover = begin(Origin(savepoint, checkpoint, StoreAccess(endpoint, encryption_key))).handover
    offsets: dict[str, dict[str, int]] = {}
    for topic, count in (partitions or {}).items():
        offsets[topic] = dict.fromkeys(map(str, range(count)), _FROM_THE_OLDEST)
    for split, (_, position, _) in handover.positions(source).items():
        topic, number = TopicPartition.of(split)
        if number < 0 or not (position in (None, EARLIEST) or type(position) is int):
            raise _not_of(source, "a KafkaSource, with offsets of partitions", split)
        offset = position if type(position) is int else _FROM_THE_OLDEST
        offsets.setdefault(topic, {})[str(number)] = offset
    return json.dumps(offsets, sort_keys=True)


@dataclass(frozen=True, slots=True)
class UnreadFiles:
    """What a job has left of its input files."""

    known_uris: tuple[str, ...]
    """The files that it has read or begun to read, as Spark names them in `_metadata.file_path`."""
    tails: str
    """A directory with the unread end of each file that was read in part, as files of text."""

    def are_new(self) -> "Column":
        """A condition for a stream of Spark over the job's files: leaves out those begun."""
        from pyspark.sql import functions as f  # noqa: PLC0415  (heavy)

        return ~f.col("_metadata.file_path").isin(list(self.known_uris))


def unread_files(
    savepoint: str,
    source: str,
    *,
    path: Path | str,
    tails: Path | str,
    checkpoint: str,
    header: bool = False,
    endpoint: str | None = None,
    encryption_key: str | None = None,
) -> UnreadFiles:
    """The files of a job's source of lines (text, JSON, CSV) that a query still has to read.

    `path` is that of the source. Of files read in part the rest is written to the directory
    `tails`, which the query reads beside the others; `header`: their first line names columns, and
    a rest begins with it too. The other arguments are those of `starting_offsets`.

    Raises ConfigError, RestoreError for a source without lines, StorageError for a file that is
    not as the job has read it, and what the stores raise.
    """
    handover = begin(Origin(savepoint, checkpoint, StoreAccess(endpoint, encryption_key))).handover
    root, target = Path(path).absolute(), Path(tails).absolute()
    if target == root or root in target.parents:
        raise ConfigError(
            f"tails={tails!r}",
            expected=f"a directory outside of {path}, whose files the query reads too",
            found="one within it",
            action="choose another one",
        )
    uris: list[str] = []
    make_directory(target)
    for number, (split, (is_ended, position, _)) in enumerate(handover.positions(source).items()):
        if not is_ended and position is None:
            continue
        file = root / split if root.is_dir() else root
        uris += java_uris(file)
        if is_ended:
            continue
        if not isinstance(position, list) or len(position) not in (3, 6):
            raise _not_of(source, "a source of lines, with offsets in files", split)
        _write_tail(file, position, target / f"{number:06d}", header=header)
    return UnreadFiles(tuple(uris), str(target))


def java_uris(file: Path) -> tuple[str, str]:
    """The URIs of a local file that Hadoop writes, depending on how it was listed.

    What is no ASCII stays as it is there.
    """
    path = "".join(c if ord(c) > 0x7F else quote(c, safe=_LEGAL) for c in file.as_posix())
    return f"file:{path}", f"file://{path}"


def _write_tail(file: Path, position: list[Any], target: Path, *, header: bool) -> None:
    """Write what comes after a position, unless an earlier call has."""
    if target.exists():
        return
    input_file = InputFile(file)
    try:
        text = _text(input_file, position)
        rest = _from(text, text.begins_at)
        first = next(rest, b"")
        if not first:
            return
        with failures(target):
            hidden = target.with_name(f".{target.name}")
            with hidden.open("wb") as tail:
                if header and text.begins_at:
                    tail.write(_first_line(input_file))
                tail.write(first)
                tail.writelines(rest)
            hidden.replace(target)
            sync_directory(target.parent)
    finally:
        input_file.close()


def _text(file: InputFile, position: list[Any] | None) -> PlainText | CompressedText:
    member = MEMBERS.get(file.path.suffix.lower())
    if member is None:
        return PlainText(file, position, follow=True)
    return CompressedText(file, position, member)


def _from(text: PlainText | CompressedText, offset: int) -> Iterator[bytes]:
    while data := text.read(offset, _CHUNK_BYTES):
        yield data
        offset += len(data)


def _first_line(file: InputFile) -> bytes:
    beginning = b""
    for data in _from(_text(file, None), 0):
        beginning += data
        line, newline, _ = beginning.partition(b"\n")
        if newline:
            return line + newline
    raise StorageError(
        f"input file {file.path}",
        expected="a first line with the names of the columns",
        found="no line",
        action="leave header= out, or put the file back as the job has read it",
    )


def _not_of(source: str, expected: str, split: str) -> RestoreError:
    return RestoreError(
        f"source {source!r}",
        expected=expected,
        found=f"split {split!r}, whose position is that of another kind of source",
        action="let the job read its input to the end before it is stopped, and begin the query "
        "with other input; or run the job on Spark by `tidelog spark run`, where it can",
    )
