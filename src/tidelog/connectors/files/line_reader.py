"""Files that are read in chunks of whole lines.

Invariants: a position is the offset of the start of a line in the text, and what the kind of file
needs to go on there: see `PlainText` and `CompressedText`.
"""

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidelog.connectors.arguments import typed
from tidelog.connectors.files.compressed import MEMBERS, CompressedText
from tidelog.connectors.files.source import (
    MARKED_BYTES,
    InputFile,
    InputFiles,
    SilentFile,
    check_position,
    has_other_size,
    is_marked,
    mark_of,
)
from tidelog.errors import ConfigError, StorageError, require
from tidelog.events import Event
from tidelog.runtime.source import SplitReader

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 128 << 10
MAX_LINE_BYTES: Final = 64 << 20

_POLL_S: Final = (0.1, 60.0)
"""Seconds until a followed file is looked at again: after lines, and at most while none come. Files
of earlier days stay, and looking at all of them takes time: which of them has changed meanwhile is
seen where files are listed."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""With which some programs begin files of UTF-8; it belongs to no line."""


_COUNTED_AT_ONCE: Final = 1 << 20
"""Bytes that are read at once for the number of a line."""


def without_mark(data: bytes) -> tuple[bytes, int]:
    """The beginning of a text without its byte order mark, and the length of the mark."""
    length = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    return data[length:], length


class LineFiles(InputFiles):
    """Files that are read by lines; subclasses say what a line becomes."""

    @typed
    def __init__(
        self,
        path: Path | str,
        include: str = "*",
        *,
        follow: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        super().__init__(path, include, follow=follow)
        for what, size in (("chunk_bytes", chunk_bytes), ("max_line_bytes", max_line_bytes)):
            require(what, size, size >= 1, "at least 1")
        self.longest = max_line_bytes  # without the newline
        # One byte more than the longest line: a line that fits a chunk is then never too long.
        self.chunk = min(chunk_bytes, max_line_bytes + 1)

    def has_more(self, split: str, position: Any) -> bool:
        """Whether a file read to its end has another size: it has grown, or is to be refused."""
        size = {3: 0, 6: 2}.get(len(position or ()))
        return has_other_size(self.locate(split), None if size is None else position[size])


class PlainText:
    """The bytes of a file as they are.

    A position is [offset, limit, mark]: the limit is the size when this start opened the file, and
    None for one that is followed; a later start has its own, as a line that ended the job may have
    been corrected. The mark is `mark_of` what was read.
    """

    def __init__(self, file: InputFile, position: Any, *, follow: bool) -> None:
        self._file = file
        position = position or (0, None, mark_of(b""))
        check_position(file.path, fits=len(position) == 3)
        offset, limit, mark = position
        now = file.identity.st_size
        self.ends_at = None if follow else now
        if now < offset:
            raise file.changed(f"at least {offset} bytes", f"{now} bytes")
        self._begin = file.read(0, mark[0]) if mark[0] else b""
        start = max(0, offset - MARKED_BYTES)
        self._before = file.read(start, offset - start)
        """What was read last, up to the position or further, from `_before_at` on."""
        self._before_at = start
        self.size_at_end: int | None = None
        """Bytes that a followed file had when it was read to its end."""
        if not is_marked(self._begin, self._before, mark):
            raise self._file.written_anew()
        self.begins_at: int = offset
        if offset == limit:
            rest = self._rest_of_line(offset)
            self.begins_at, self._before = offset + len(rest), self._before + rest

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from the offset on; fewer only at the end, of a followed file as it is now."""
        if self.ends_at is not None:
            size = min(size, self.ends_at - offset)
        data = self._file.read(offset, size)
        self.size_at_end = None
        if len(data) < size:
            self.size_at_end = offset + len(data)
            minimum = offset if self.ends_at is None else self.ends_at
            now = self._file.size_now()
            if now < minimum:
                raise self._file.changed(f"at least {minimum} bytes", f"{now} bytes")
        beginning = self._begin[:offset]
        if data and beginning and self._file.read(0, len(beginning)) != beginning:
            raise self._file.written_anew()
        if offset <= len(beginning) < MARKED_BYTES:
            self._begin = (beginning + data)[:MARKED_BYTES]
        before = self._before[: offset - self._before_at][-MARKED_BYTES:]
        self._before, self._before_at = before + data, offset - len(before)
        return data

    def unread(self, offset: int) -> int | None:
        """Bytes behind an offset, as the file is now."""
        end = self._file.open_bytes() if self.ends_at is None else self.ends_at
        return None if end is None else max(0, end - offset)

    def position(self, offset: int) -> list[Any]:
        """What a checkpoint keeps, so that a restart goes on at this offset."""
        before = self._before[: offset - self._before_at]
        return [offset, self.ends_at, mark_of(self._begin[:offset], before)]

    def _rest_of_line(self, offset: int) -> bytes:
        """The newline of the last line, where the file had none when an earlier run read it.

        Raises StorageError where that line goes on: it was read as it was.
        """
        added = self._file.read(offset, 2)
        text, _ = without_mark(self._before)
        if not text or text.endswith(b"\n") or not added:
            return b""
        for newline in (b"\n", b"\r\n"):
            if added.startswith(newline):
                return newline
        raise StorageError(
            f"input file {self._file.path}, byte {offset}",
            expected="a newline: what is before was read as the last line of the file, without one",
            found="more of that line",
            action="put the file back as it was, and write further lines after a newline, or into "
            "another file",
            retry_safe=False,
        )


class LineReader(SplitReader):
    """Reads one file in chunks of whole lines; subclasses turn them into records.

    Raises ConfigError for a line above the limit, ObjectNotFoundError for a file that is gone,
    StorageError for one that became shorter, was replaced or cannot be read, CorruptObjectError
    for a compressed one that is damaged or not complete.
    """

    position: list[Any]
    delay_s = _POLL_S[0]

    def __init__(self, source: LineFiles, split: str, position: Any) -> None:
        self._source = source
        self._split = split
        self._path = path = source.locate(split)
        self.counts: Counter[str] = Counter()
        """Lines that were not taken as they are, by what is wrong with them."""
        self._logged: dict[str, int] = {}
        self._file = InputFile(path)
        try:
            self._text = self.new_text(position)
        except BaseException:
            self.close()
            raise
        self._offset = self._text.begins_at
        self.position = self._text.position(self._offset)

    @property
    def at_end(self) -> bool:  # type: ignore[override]  # computed here
        end = self._text.ends_at
        return end is not None and self._offset >= end

    @abstractmethod
    def records(self, data: bytes, offset: int, *, last: bool) -> tuple[list[Any], int]:
        """The records in data that begin at an offset of the text, and the length of their lines;
        the last data of a text may end without a newline.
        """

    def new_text(self, position: Any) -> PlainText | CompressedText:
        """The text of the file from a position on."""
        begin = MEMBERS.get(self._path.suffix.lower())
        if begin is None:
            return PlainText(self._file, position, follow=self._source.follow)
        return CompressedText(self._file, position, begin)

    def line_number(self, offset: int) -> int:
        """The number of the line at an offset, for an error: the text before is read again."""
        text, start, number = self.new_text(None), 0, 1
        while data := text.read(start, min(_COUNTED_AT_ONCE, offset - start)):
            number += data.count(b"\n")
            start += len(data)
        return number

    def read(self) -> list[Any] | None:
        if self.at_end:
            return None
        records, length = self._next(self._offset)
        self.delay_s = _POLL_S[0] if length else min(2 * self.delay_s, _POLL_S[1])
        self._offset += length
        self.read_bytes = length
        self.unread = self._text.unread(self._offset)
        self.position = self._text.position(self._offset)
        if self.at_end:
            self._log_counts(at_end=True)
            self.close()  # in the thread that reads: closing may wait, as all that storage does
        return records

    def set_listener(self, listener: Callable[[], None]) -> None:
        file, size = self._file.identity, self._text.size_at_end
        if size is not None and self.delay_s > _POLL_S[0]:
            wake = partial(asyncio.get_running_loop().call_soon_threadsafe, listener)
            silent = SilentFile(file.st_dev, file.st_ino, size, wake)
            self._source.wake_when_changed(self._split, silent)

    def pause(self) -> None:
        """A directory may have more files than a process may have open."""
        self.close()

    def close(self) -> None:
        self._file.close()

    def count(self, lines: int, what: str) -> None:
        """So many lines were not taken as they are: logged with the first, and when all is read."""
        self.counts[what] += lines
        self._log_counts(at_end=False)

    def _log_counts(self, *, at_end: bool) -> None:
        for what, lines in self.counts.items():
            logged = self._logged.get(what, 0)
            if logged < lines and (at_end or not logged):
                Event.INPUT_LINES.log(logger, file=self._path, lines=lines, what=what)
                self._logged[what] = lines

    def _next(self, offset: int) -> tuple[list[Any], int]:
        """Records from the offset on and the length of their lines; none without a whole line."""
        size, longest = self._source.chunk, self._source.longest
        while True:
            data = self._text.read(offset, size)
            if len(data) > longest and b"\n" not in data:
                raise self._too_long(offset)
            last = offset + len(data) == self._text.ends_at
            lines, mark = without_mark(data) if offset == 0 else (data, 0)
            records, length = self.records(lines, offset + mark, last=last) if lines else ([], 0)
            if length or last:
                return records, mark + length
            if len(data) < size:
                return [], 0
            if len(data) > longest:
                raise self._too_long(offset)
            size = min(2 * size, longest + 1)

    def _too_long(self, offset: int) -> ConfigError:
        return ConfigError(
            f"input file {self._path}, line at byte {offset}",
            expected=f"a newline within {self._source.longest} bytes",
            found="none",
            action="raise max_line_bytes, or check that the file holds lines",
        )
