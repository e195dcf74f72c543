"""Files as a sink, exactly once: two-phase commit by appending and renaming.

Invariants: between checkpoints records go to hidden files only; `pre_commit` makes these durable
and `commit` puts them into view, so readers see committed records and no others: of the newest
ones in a file that grows, of all others in `part-*` files, which never change.
"""

import errno
import logging
import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tidelog.connectors import transactions
from tidelog.connectors.arguments import local_path, typed
from tidelog.connectors.files.committed import CommitMarks
from tidelog.connectors.files.parts import (
    STAGING,
    OpenPart,
    Part,
    check_newest,
    failures,
    pending_name,
    remove_pending,
    take_over,
    taken,
)
from tidelog.connectors.files.shown import RollingFiles, begun, complete_all, publish
from tidelog.connectors.records import Format, line_encoder
from tidelog.connectors.transactions import those_of
from tidelog.errors import TidelogError, UnavailableError, require
from tidelog.events import Event
from tidelog.ids import CheckpointId
from tidelog.runtime.sink import Sink, SinkContext, SinkWriter
from tidelog.storage.local_files import sync_directory

logger = logging.getLogger(__name__)

ROLL_BYTES: Final = 128 << 20
ROLL_EVERY_S: Final = 300.0


class FileSink(Sink):
    """Writes records as lines to `part-<subtask>-<checkpoint>-<n>` files in a directory.

    The names sort in the order written, per subtask. JSON lines end in `.jsonl`, else `.txt`;
    `fields` names the values of tuples in JSON. Each checkpoint adds its records to a file
    `_part-*.inprogress`, which becomes a `part-*` file after `roll_every` seconds, before it
    outgrows `roll_bytes` (but never within a buffer of records, about 1 MiB), and when the job
    ends; with `roll_every=0` at once. The directory belongs to one sink of one job. Raises
    ConfigError.
    """

    @typed
    def __init__(
        self,
        directory: Path | str,
        format: Format = "json",
        *,
        fields: Sequence[str] | None = None,
        roll_bytes: int = ROLL_BYTES,
        roll_every: float = ROLL_EVERY_S,
    ) -> None:
        require("roll_bytes", roll_bytes, roll_bytes >= 1, "at least 1")
        require("roll_every", roll_every, roll_every >= 0, "seconds, 0 or more")
        self.output_path = self.directory = local_path("directory", directory, "--output")
        self.encode = line_encoder(format, fields)
        self.extension = ".jsonl" if format == "json" else ".txt"
        self.example_file = self.directory / f"part-0{self.extension}"
        self.roll_bytes = roll_bytes
        self.roll_every = roll_every

    def open(self, context: SinkContext) -> "FilesWriter":
        """Raises ConfigError where a job begins and the directory has files of an earlier one."""
        if context.is_new_job and (found := next(self.directory.glob("*part-*"), None)):
            raise UnavailableError(
                f"output directory {self.directory}",
                expected="no part files where a job begins: its output would be added to them",
                found=found.name,
                action="give the job the store that it had; or move the files away, or give it "
                "another directory",
                retry_safe=False,
            )
        return FilesWriter(self, context)


class FilesWriter(SinkWriter):
    """Writes the files of one subtask; all methods raise StorageError when the disk refuses.

    The constructor, `pre_commit` and `commit` raise FencedError when a newer start writes.
    """

    def __init__(self, sink: FileSink, context: SinkContext) -> None:
        self._sink = sink
        self._directory = sink.directory
        self._context = context
        self._marks = CommitMarks(self._directory, context, take_over(self._directory, context))
        self._opened = 0
        self._parts: list[OpenPart] = []
        """The open transaction."""
        self._rolling = RollingFiles(self._directory, context, sink.roll_bytes, sink.roll_every)

    def recover(self, transactions: Sequence[bytes]) -> None:
        """Publish these; remove the other hidden files that are its to abort, and complete the
        files that earlier starts left growing.

        Raises ObjectNotFoundError where the directory lacks what was committed to it.
        """
        for transaction in transactions:
            self._publish(transaction, verify=True)
        context = self._context
        if context.retained_transactions is not None:
            self._marks.check_complete()
            own = _parts((*context.own_transactions, *transactions))
            for part in begun(self._directory, own, context.may_abort):
                publish(self._directory, part, verify=True)
            # Also parts of other names' sinks: this one may have been renamed.
            parts = [*_parts(context.retained_transactions), *own]
            remove_pending(self._directory, context.may_abort, {part.pending for part in parts})
            complete_all(self._directory, context.may_abort)
            self._marks.forget_all_but(parts)

    def write(self, records: Sequence[Any]) -> None:
        """Append to the open part; raises UserFunctionError for a record that has no such form."""
        data = self._sink.encode(records)
        if not data:
            return
        last = self._parts[-1] if self._parts else None
        if last is None or not last.takes_more or last.size + len(data) > self._sink.roll_bytes:
            last = OpenPart(self._directory, self._next_name())
            self._parts.append(last)
        last.write(data)

    def pre_commit(self, checkpoint: CheckpointId) -> bytes | None:
        """Sync the open parts; raises ConfigError when their final names are taken, and
        ObjectNotFoundError when one was removed.

        After a failure all of them stay open for the next checkpoint, those synced already, too.
        """
        if self._parts or self._rolling.due():
            check_newest(self._directory, self._context)
        self._rolling.complete_due()
        if not self._parts:
            return None
        names = [self._final_name(checkpoint, n) for n in range(len(self._parts))]
        for at, part in enumerate(self._parts):
            if part.doubtful:
                self._parts[at] = part.copied(self._next_name())
                part.try_discard()
            self._parts[at].seal()
            self._parts[at].check_there()
        with failures(self._directory):
            sync_directory(self._directory / STAGING)
            self._check_room()
        parts, self._parts = self._parts, []
        return transactions.encode(self._rolling.assign(names, parts))

    def _check_room(self) -> None:
        """Raises OSError when the disk has no room for what commits are to append: a checkpoint
        fails and is made again, a commit that fails stops the job.
        """
        if self._sink.roll_every > 0:
            appended = sum(part.size for part in self._parts) + self._rolling.uncommitted_bytes()
            disk = os.statvfs(self._directory)
            if disk.f_bavail * disk.f_frsize < appended:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def due(self) -> bool:
        return bool(self._rolling.due())

    def commit(self, transaction: bytes) -> None:
        """Add the parts to the files in view.

        Raises ObjectNotFoundError, CorruptObjectError and ConfigError when what was
        pre-committed is gone, damaged, or another file has its name.
        """
        self._publish(transaction, verify=False)

    def close(self) -> None:
        while self._parts:
            self._parts.pop().discard()
        try:
            if self._rolling.due(all_files=True):
                check_newest(self._directory, self._context)
                self._rolling.complete_due(all_files=True)
        except TidelogError as error:
            Event.OUTPUT_STAYS_IN_PROGRESS.log(logger, directory=self._directory, error=error)

    def _publish(self, transaction: bytes, *, verify: bool) -> None:
        check_newest(self._directory, self._context)
        parts = transactions.decode(self._context.name, list[Part], transaction)
        for part in parts:
            publish(self._directory, part, verify=verify)
        with failures(self._directory):
            sync_directory(self._directory)
        self._marks.record(parts)
        for part in parts:
            self._rolling.committed(part)
        self._rolling.complete_due()

    def _next_name(self) -> str:
        context, number = self._context, self._opened
        self._opened += 1
        return pending_name(context.generation, context.attempt, context.subtask, number)

    def _final_name(self, checkpoint: CheckpointId, number: int) -> str:
        stem = f"part-{self._context.subtask:05d}-{checkpoint:010d}-{number:04d}"
        name = stem + self._sink.extension
        with failures(self._directory / name):
            if (self._directory / name).exists():
                raise taken(self._directory / name)
        return name


def _parts(transactions: Iterable[bytes]) -> list[Part]:
    return list(chain.from_iterable(those_of(list[Part], transactions)))
