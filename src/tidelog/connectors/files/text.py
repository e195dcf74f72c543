"""Text files: every line is a record.

Invariant: records are the bytes between newlines, decoded as UTF-8 with a replacement character
for what is not, which is counted and logged; a carriage return before a newline belongs to it, and
a byte order mark to no line.
"""

from itertools import filterfalse
from pathlib import Path
from typing import Any

from tidelog.connectors.files.line_reader import CHUNK_BYTES, MAX_LINE_BYTES, LineLimits, LineReader
from tidelog.connectors.files.source import LineFiles


class TextFiles(LineFiles):
    """Lines of files as `str`, without their newlines (`\\n` or `\\r\\n`).

    `path` is a file, or a directory with all files below it that match the glob `include`: it
    is compared with the file name, or with the end of the path when it holds a `/`. Hidden
    files and linked directories are left out. Each file is read up to the size it had when it
    was first opened. With `follow` the input never ends: files may grow and new ones appear,
    and a line counts once its newline is there. Files whose names end in `.gz` or `.zst` are
    decompressed; they must be complete when they appear. Sizes are in bytes. Raises ConfigError.
    """

    def __init__(
        self,
        path: Path | str,
        include: str = "*",
        *,
        follow: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        super().__init__(path, include, LineLimits(chunk_bytes, max_line_bytes), follow=follow)

    def open(self, split: str, position: Any) -> "TextReader":
        """Raises ObjectNotFoundError and StorageError."""
        return TextReader(self._locate(split), position, self._limits, follow=self._follow)


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


class TextReader(LineReader):
    """The lines of one file as `str`."""

    def decode(self, data: bytes, offset: int) -> list[str]:
        # A newline byte is never part of another UTF-8 character, nor of a broken one, so
        # decoding many lines at once gives what decoding each would.
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            broken = len(list(filterfalse(_is_text, data.split(b"\n"))))
            self.count(broken, "have bytes that are no UTF-8, replaced by U+FFFD")
        if "\r\n" in text:
            text = text.replace("\r\n", "\n")
        lines = text.split("\n")
        if not lines[-1]:  # the last line has its newline
            lines.pop()
        return lines
