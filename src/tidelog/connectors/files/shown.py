"""The output files that readers see: they grow by whole transactions, then get their final names.

Invariants: a file under its final name is complete and synced, and no file there is ever changed
or replaced; a growing file has only bytes of durable checkpoints, each at the offset that its
checkpoint names, so that a commit which is made again writes the same bytes; directories are
synced after the names in them changed.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tidelog.connectors.files.parts import (
    BUFFER_BYTES,
    GROWING,
    STAGING,
    SUFFIX,
    OpenPart,
    Part,
    check_part,
    damaged,
    failures,
    growing_name,
    taken,
)
from tidelog.connectors.transactions import CLONE
from tidelog.errors import ObjectNotFoundError
from tidelog.runtime.sink import SinkContext
from tidelog.storage.local_files import sync_directory


class _Growing:
    """A file in view that takes further transactions."""

    def __init__(self, target: str, opened_s: float) -> None:
        self.target = target
        self.opened_s = opened_s
        self.assigned_bytes = 0
        """What checkpoints have placed in it."""
        self.committed_bytes = 0


class RollingFiles:
    """The growing files of one writer: the one that new transactions go to, and those before it
    that wait for their commits; a file is complete at a size, or after a time.
    """

    def __init__(
        self, directory: Path, context: SinkContext, limit_bytes: int, limit_s: float
    ) -> None:
        self._directory = directory
        self._context = context
        self._limit_bytes = limit_bytes
        self._limit_s = limit_s
        self._files: list[_Growing] = []

    def uncommitted_bytes(self) -> int:
        return sum(file.assigned_bytes - file.committed_bytes for file in self._files)

    def assign(self, names: Sequence[str], parts: Sequence[OpenPart]) -> list[Part]:
        """Where the parts of a transaction go, each with a name of its own."""
        return [self._assigned(name, part) for name, part in zip(names, parts, strict=True)]

    def _assigned(self, name: str, part: OpenPart) -> Part:
        file = self._files[-1] if self._files else None
        fits = file is not None and file.assigned_bytes + part.size <= self._limit_bytes
        if file is None or not fits or self._is_due(file):
            file = _Growing(name, self._context.clock.monotonic())
            self._files.append(file)
        placed = part.named(name, file.target, self._context.generation, file.assigned_bytes)
        file.assigned_bytes = placed.end
        return placed

    def committed(self, part: Part) -> None:
        for file in self._files:
            if file.target == part.target:
                file.committed_bytes = part.end

    def complete_due(self, *, all_files: bool = False) -> None:
        """Give the files that take no more their final names, as far as they are committed."""
        for file in self.due(all_files=all_files):
            growing = growing_name(file.target, self._context.generation)
            complete(self._directory, growing, file.target)
            self._files.remove(file)

    def due(self, *, all_files: bool = False) -> list[_Growing]:
        return [
            file
            for file in self._files
            if file.committed_bytes == file.assigned_bytes
            and (all_files or file is not self._files[-1] or self._is_due(file))
        ]

    def _is_due(self, file: _Growing) -> bool:
        age_s = self._context.clock.monotonic() - file.opened_s
        return file.assigned_bytes >= self._limit_bytes or age_s >= self._limit_s


def publish(directory: Path, part: Part, *, verify: bool) -> None:
    """Put a part into view; success also when that was done before.

    `verify` reads the hidden file and compares its checksum: after a crash. Raises
    ObjectNotFoundError when the part is nowhere, CorruptObjectError when it is not what was
    written, ConfigError when another file has its name. The caller syncs the directory.
    """
    pending = directory / STAGING / part.pending
    with failures(directory / part.final):
        # A predecessor that still runs may do the same at any moment: look at the result.
        with suppress(FileNotFoundError):
            check_part(pending, part, verify=verify)
            _show(directory, part, pending)
        _check_shown(directory, part)


def _show(directory: Path, part: Part, pending: Path) -> None:
    final, growing = directory / part.final, directory / part.growing
    if final.exists():
        raise taken(final)
    if part.offset == 0:
        if growing.exists():
            raise taken(growing)
        # The first bytes of a file are not copied: they are synced already.
        pending.rename(growing)
    elif not (complete := directory / part.target).exists():
        _append(pending, growing, part)
        pending.unlink()
    elif (size := complete.stat().st_size) >= part.end:
        pending.unlink()
    elif size == part.offset:
        # A start from an older checkpoint has completed the file without this part.
        pending.rename(final)


def _append(pending: Path, growing: Path, part: Part) -> None:
    """Write a part's bytes at their offset, where a crash may have left some of them."""
    with pending.open("rb") as source, growing.open("r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size < part.offset:
            raise damaged(growing, f"{part.offset} bytes or more", f"{size} bytes")
        file.seek(part.offset)
        while data := source.read(BUFFER_BYTES):
            file.write(data)
        os.fsync(file.fileno())


def _check_shown(directory: Path, part: Part) -> None:
    """Raises ObjectNotFoundError and CorruptObjectError unless a part is in view."""
    final = directory / part.final
    if part.target != part.final and final.exists():
        return check_part(final, part, verify=False)
    for name in (part.target, part.growing):
        path = directory / name
        if path.exists():
            if (size := path.stat().st_size) < part.end:
                raise damaged(path, f"{part.end} bytes or more", f"{size} bytes")
            return None
    growing = directory / part.growing if part.offset else final
    data = f"its pre-committed data in {directory / STAGING / part.pending}"
    raise ObjectNotFoundError(
        f"output file {growing}",
        expected=f"its first {part.offset} bytes, and {data}" if part.offset else f"it, or {data}",
        found="neither",
        action="bring back what is missing: its records are in no other file; files of "
        f"the newest checkpoint have to stay; to write to another directory, {CLONE}",
        retry_safe=False,
    )


def begun(
    directory: Path, parts: Iterable[Part], chosen: Callable[[int, int], bool]
) -> Iterator[Part]:
    """Parts of which a crash has left some bytes in a growing file, but not all, and whose
    generation and subtask are chosen.
    """
    for part in parts:
        path, owner = directory / part.growing, GROWING.fullmatch(part.growing)
        if owner is None or not chosen(part.generation, int(owner["subtask"])):
            continue
        with failures(path), suppress(FileNotFoundError):
            if 0 < part.offset < path.stat().st_size < part.end:
                yield part


def complete(directory: Path, growing: str, target: str) -> None:
    """Give a growing file its final name; success also when that was done before."""
    source, final = directory / growing, directory / target
    with failures(final):
        if source.exists() and final.exists():
            raise taken(final)
        try:
            source.rename(final)
        except FileNotFoundError:
            if not final.exists():
                raise
        sync_directory(directory)


def complete_all(directory: Path, chosen: Callable[[int, int], bool]) -> None:
    """Give the growing files whose generation and subtask are chosen their final names."""
    with failures(directory):
        names = [path.name for path in directory.glob(f"_part-*{SUFFIX}")]
    for name in sorted(names):
        owner = GROWING.fullmatch(name)
        if owner is not None and chosen(int(owner["generation"]), int(owner["subtask"])):
            with failures(directory / name):
                _cut_to_lines(directory / name)
            complete(directory, name, owner["target"])


def _cut_to_lines(path: Path) -> None:
    """Remove a last line that a crash has cut, of a checkpoint that nobody goes on from."""
    with path.open("r+b") as file:
        end = size = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - BUFFER_BYTES)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            end = begin + newline + 1 if newline >= 0 else begin
            if newline >= 0:
                break
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())
