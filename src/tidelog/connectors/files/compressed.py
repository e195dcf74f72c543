"""Compressed files as text: gzip and zstd, of one member (frame) or of many.

Invariants: a position is an offset in the text; going on decompresses the file from its beginning
and leaves out the text before. Memory is bounded by a piece of text, a window of the decompressor
and what the caller asks for, whatever the file holds.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import zstandard

from tidelog.connectors.files.source import (
    MARKED_BYTES,
    InputFile,
    check_position,
    is_marked,
    mark_of,
)
from tidelog.errors import CorruptObjectError

_PIECE: Final = 64 << 10
_ZSTD_PIECES: Final = (64, 1024)
"""Bytes of a file that are decompressed at once, at first and at most: 4 may be a block of 128 KiB
of text, so they are few until text has turned out to be as long as it usually is."""


class _GzipMember:
    def __init__(self) -> None:
        self.decompressor = zlib.decompressobj(wbits=31)

    def decompress(self, data: memoryview) -> tuple[bytes, int]:
        """A piece of text, and how many bytes of the data it was made of."""
        inner = self.decompressor
        text = inner.decompress(data, _PIECE)
        return text, len(data) - len(inner.unused_data if inner.eof else inner.unconsumed_tail)


class _ZstdFrame:
    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor().decompressobj()
        self._size, self._largest = _ZSTD_PIECES

    def decompress(self, data: memoryview) -> tuple[bytes, int]:
        piece = data[: self._size]
        text = self.decompressor.decompress(piece)
        if len(text) < self._size << 8:
            self._size = min(2 * self._size, self._largest)
        else:
            self._size = _ZSTD_PIECES[0]
        return text, len(piece) - len(self.decompressor.unused_data)


Member = _GzipMember | _ZstdFrame
MEMBERS: Final[Mapping[str, Callable[[], Member]]] = {".gz": _GzipMember, ".zst": _ZstdFrame}
"""By the suffix of a file's name."""


class CompressedText:
    """The text of a compressed file, read from front to back.

    A file is complete when it appears: its end is an end also where files are followed. A position
    is [offset, None, size, end, mark, file mark], with the size of the file once the offset is the
    end of its text, and zeros before; the marks are `mark_of` the text as far as it was read, and
    of the file's own bytes once all are.
    """

    size_at_end: Final = None
    """Nobody waits for more at its end."""

    def unread(self, offset: int) -> int | None:
        """How much text is left is known at its end alone."""
        return None

    def __init__(self, file: InputFile, position: Any, new_member: Callable[[], Member]) -> None:
        position = position or (0, None, 0, 0, mark_of(b""), mark_of(b""))
        check_position(file.path, fits=len(position) == 6)
        self.begins_at, _, read_size, end, self._mark, file_mark = position
        """The offset in the text at which reading goes on, and the mark of that position."""
        size = file.identity.st_size
        if size < read_size:
            raise file.changed(f"at least {read_size} bytes", f"{size} bytes")
        if read_size and file.mark(read_size) != list(file_mark):
            raise file.written_anew()
        at_end = 0 < read_size == size and end == self.begins_at
        self.ends_at: int | None = end if at_end else None
        """The end of the text, once it is known."""
        self._file = file
        self._beginning = b""
        self._before = b""
        """The last of the text that was left out or handed out."""
        self._new_member = new_member
        self._member: Member | None = None
        self._data = memoryview(b"")
        """What was read of the file and is not decompressed."""
        self._data_end = 0
        self._text = bytearray()
        """What is decompressed of it from the offset `_start` on."""
        self._start = 0

    def read(self, offset: int, size: int) -> bytes:
        """Text from the offset on, which only grows from call to call; fewer only at the end."""
        while True:
            dropped = min(offset - self._start, len(self._text))
            self._before = self._text_before(self._start + dropped)
            del self._text[:dropped]
            self._start += dropped
            if self._start == offset and len(self._text) >= size:
                break
            if not self._decompress():
                break
        if self._start < offset:
            raise self._file.changed(f"at least {offset} bytes of text", f"{self._start} bytes")
        if offset == self.begins_at and not is_marked(self._beginning, self._before, self._mark):
            raise self._file.written_anew()
        return bytes(self._text[:size])

    def position(self, offset: int) -> list[Any]:
        """What a checkpoint keeps, so that a restart goes on at this offset."""
        mark = self._mark
        if self._beginning:
            mark = mark_of(self._beginning[:offset], self._text_before(offset))
        if offset != self.ends_at:
            return [offset, None, 0, 0, mark, mark_of(b"")]
        size = self._file.identity.st_size
        return [offset, None, size, offset, mark, self._file.mark(size)]

    def _text_before(self, offset: int) -> bytes:
        text = self._text[: offset - self._start]
        return (
            (self._before + text)[-MARKED_BYTES:]
            if len(text) < MARKED_BYTES
            else bytes(text[-MARKED_BYTES:])
        )

    def _decompress(self) -> bool:
        """Add a piece; False at the end."""
        if self.ends_at is not None:
            return False
        if not self._data:
            self._read_data()
        if self._member is None and self._data_end > len(self._data):
            self._skip_padding()
        if not self._data:
            # Nothing at all is what a writer leaves that has only created its file.
            if self._member is not None or not self._data_end:
                raise CorruptObjectError(
                    f"compressed input file {self._file.path}, byte {self._file.size_now()}",
                    expected="more: the file is not complete",
                    found="its end",
                    action="put the whole file there and start again, which goes on where it was; "
                    "write compressed files elsewhere, or under a name with a dot in front, and "
                    "rename them when they are complete",
                )
            self.ends_at = self._start + len(self._text)
            return False
        if self._member is None:
            self._member = self._new_member()
        try:
            text, length = self._member.decompress(self._data)
        except (zlib.error, zstandard.ZstdError) as error:
            raise CorruptObjectError(
                f"compressed input file {self._file.path}, near byte "
                f"{self._data_end - len(self._data)}",
                expected=f"data as its suffix {self._file.path.suffix!r} says, without a "
                "dictionary and with a window of at most 128 MiB",
                found=str(error),
                action="put the file there as it was written, compress it otherwise, or name it "
                "as what it is; and start again, which goes on where it was",
            ) from error
        self._data = self._data[length:]
        if self._member.decompressor.eof:
            self._member = None
        self._text += text
        if len(self._beginning) < MARKED_BYTES:
            self._beginning = (self._beginning + text)[:MARKED_BYTES]
        return True

    def _skip_padding(self) -> None:
        """Zeros after a member, as tapes have them."""
        while self._data and not self._data[0]:
            self._data = memoryview(bytes(self._data).lstrip(b"\0"))
            if not self._data:
                self._read_data()

    def _read_data(self) -> None:
        data = self._file.read(self._data_end, _PIECE)
        self._data = memoryview(data)
        self._data_end += len(data)
