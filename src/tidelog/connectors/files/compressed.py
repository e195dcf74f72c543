"""Compressed files as text: gzip and zstd, of one member (frame) or of many.

Invariants: a position is [offset, None, start, text]: the offset in the text, and the last start
of a member (frame) that is not behind it, as a byte of the file and as an offset of the text, so
that going on decompresses from there; memory is bounded by a piece of text, a window of the
decompressor and what the caller asks for, whatever the file holds.
"""

import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import zstandard

from tidelog.connectors.files.input_file import InputFile
from tidelog.errors import CorruptObjectError, RestoreError

_PIECE: Final = 64 << 10
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_LONGEST_HEADER: Final = 18


class _Input:
    """The bytes of a compressed file, in order."""

    def __init__(self, file: InputFile, at: int) -> None:
        self.file = file
        self.at = at
        """Where the next byte is."""
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        """The next bytes; fewer only at the end of the file."""
        if len(self._ahead) < size:
            missing = max(size, _PIECE) - len(self._ahead)
            self._ahead += self.file.read(self.at + len(self._ahead), missing)
        return self._ahead[:size]

    def take(self, size: int) -> bytes:
        """The same, and go on behind them; raises CorruptObjectError when there are fewer."""
        data = self.peek(size)
        if len(data) < size:
            raise self.truncated()
        self.skip(size)
        return data

    def skip(self, size: int) -> None:
        """Go on behind so many bytes."""
        self._ahead = self._ahead[size:]
        self.at += size

    def truncated(self) -> CorruptObjectError:
        """The error of a file that ends too early."""
        end = self.file.size_now()
        return CorruptObjectError(
            f"compressed input file {self.file.path}, byte {end}",
            expected="more: the file is not complete",
            found="its end",
            action="put the whole file there and start again, which goes on where it was; write "
            "compressed files elsewhere, or under a name with a dot in front, and rename them "
            "when they are complete",
        )

    @contextmanager
    def damage(self) -> Iterator[None]:
        """Turns what a decompressor reports into errors that name the file and the byte."""
        try:
            yield
        except (zlib.error, zstandard.ZstdError) as error:
            raise CorruptObjectError(
                f"compressed input file {self.file.path}, near byte {self.at}",
                expected=f"data as its suffix {self.file.path.suffix!r} says, without a "
                "dictionary and with a window of at most 128 MiB",
                found=str(error),
                action="put the file there as it was written, compress it otherwise, or name it "
                "as what it is; and start again, which goes on where it was",
            ) from error


class _Decoder(ABC):
    """Decompresses a file from the start of a member (frame) on, a piece at a time."""

    def __init__(self, file: InputFile, start: int) -> None:
        self.start = start
        """Where the member (frame) begins that the newest piece is of."""
        self._input = _Input(file, start)

    @abstractmethod
    def next(self) -> bytes | None:
        """The next piece of the text, maybe an empty one; None at the end of the file."""

    def _is_over(self) -> bool:
        """Between two members: whether there is none to come."""
        self.start = self._input.at
        # Nothing at all is what a writer leaves that has only created its file.
        if self._input.peek(1):
            return False
        if not self._input.at:
            raise self._input.truncated()
        return True


class _Gzip(_Decoder):
    def __init__(self, file: InputFile, start: int) -> None:
        super().__init__(file, start)
        self._member: Any = None

    def next(self) -> bytes | None:
        """The next piece."""
        if self._member is None:
            if self._input.at:
                self._skip_padding()
            if self._is_over():
                return None
            self._member = zlib.decompressobj(wbits=31)
        data = self._input.peek(_PIECE)
        with self._input.damage():
            text: bytes = self._member.decompress(data, _PIECE)
        left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        self._input.skip(len(data) - len(left))
        if self._member.eof:
            self._member = None
        elif not data and not text:
            raise self._input.truncated()
        return text

    def _skip_padding(self) -> None:
        """Zeros behind a member, as tapes have them."""
        while data := self._input.peek(_PIECE):
            zeros = len(data) - len(data.lstrip(b"\0"))
            self._input.skip(zeros)
            if zeros < len(data):
                return


class _Zstd(_Decoder):
    """Block by block: none has more than 128 KiB of text, however small it is."""

    def __init__(self, file: InputFile, start: int) -> None:
        super().__init__(file, start)
        self._frame: Any = None
        self._checksum = 0

    def next(self) -> bytes | None:
        """The text of the next block."""
        if self._frame is None:
            if self._is_over():
                return None
            self._begin()
            return b""
        take = self._input.take
        header = take(3)
        number = int.from_bytes(header, "little")
        last, kind, size = number & 1, number >> 1 & 3, number >> 3
        stored = 1 if kind == 1 else size  # a byte that is repeated, or that many
        with self._input.damage():
            if kind == 3 or size > 128 << 10:
                raise zstandard.ZstdError("a block of no known kind")
            text: bytes = self._frame.decompress(header + take(stored))
            if last:
                text += self._frame.decompress(take(self._checksum)) if self._checksum else b""
                if not self._frame.eof:
                    raise zstandard.ZstdError("a frame that does not end with its last block")
                self._frame = None
        return text

    def _begin(self) -> None:
        header = self._input.peek(_LONGEST_HEADER)
        if len(header) < 5:  # the shortest beginning of a frame that says how long it is
            raise self._input.truncated()
        if int.from_bytes(header[:4], "little") in _SKIPPABLE:
            self._skip(int.from_bytes(self._input.take(8)[4:], "little"))
            return
        with self._input.damage():
            try:
                size = zstandard.frame_header_size(header)
                parameters = zstandard.get_frame_parameters(header)
            except zstandard.ZstdError:
                if header.startswith(zstandard.FRAME_HEADER) and len(header) < _LONGEST_HEADER:
                    raise self._input.truncated() from None
                raise
            self._checksum = 4 if parameters.has_checksum else 0
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._frame.decompress(self._input.take(size))

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._input.take(min(size, _PIECE)))


DECODERS: Final[Mapping[str, Callable[[InputFile, int], _Decoder]]] = {
    ".gz": _Gzip,
    ".zst": _Zstd,
}
"""By the suffix of a file's name."""


class CompressedText:
    """The text of a compressed file, read from front to back.

    A file is complete when it appears: its end is an end also where files are followed.
    """

    def __init__(
        self, file: InputFile, position: Any, decoder: Callable[[InputFile, int], _Decoder]
    ) -> None:
        position = position or (0, None, 0, 0)
        if len(position) != 4:
            raise RestoreError(
                f"input file {file.path}",
                expected="a position in compressed text",
                found="one in the bytes of the file, which an older version read as text",
                action="start without this checkpoint, or read the file under another name",
            )
        self._file = file
        self.ends_at: int | None = None
        """The end of the text, once it is known."""
        self.begins_at, _, start, self._at = position
        size = file.identity.st_size
        if size < start:
            raise file.changed(f"at least {start} bytes", f"{size} bytes")
        self._decoder = decoder(file, start)
        self._text = bytearray()
        """What is decompressed of it from the offset `_at` on."""
        self._starts = deque([(start, self._at)])
        """Members (frames) not behind the offset that is read next, and all that follow."""

    def read(self, offset: int, size: int) -> bytes:
        """Text from the offset on, which only grows from call to call; fewer only at the end."""
        while True:
            dropped = min(offset - self._at, len(self._text))
            del self._text[:dropped]
            self._at += dropped
            if self._at == offset and len(self._text) >= size:
                break
            if not self._decompress():
                break
        if self._at < offset:
            raise self._file.changed(f"at least {offset} bytes of text", f"{self._at} bytes")
        return bytes(self._text[:size])

    def position(self, offset: int) -> list[Any]:
        """What a checkpoint keeps, so that a restart goes on at this offset."""
        while len(self._starts) > 1 and self._starts[1][1] <= offset:
            self._starts.popleft()
        return [offset, None, *self._starts[0]]

    def _decompress(self) -> bool:
        """Add a piece; False at the end."""
        if self.ends_at is not None:
            return False
        piece = self._decoder.next()
        end = self._at + len(self._text)
        if self._decoder.start != self._starts[-1][0]:
            if self._starts[-1][1] == end:
                self._starts.pop()  # a member without text
            self._starts.append((self._decoder.start, end))
        if piece is None:
            self.ends_at = end
            return False
        self._text += piece
        return True
