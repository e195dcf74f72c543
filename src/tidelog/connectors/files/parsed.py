"""Files of lines that are parsed: one that is malformed stops the job, or is left out and counted.

Invariant: an error names the file, the number of the line and its offset.
"""

from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple

from tidelog.connectors.arguments import typed
from tidelog.connectors.files.line_reader import CHUNK_BYTES, MAX_LINE_BYTES, LineFiles, LineReader
from tidelog.errors import CorruptObjectError, require

OnError = Literal["fail", "skip"]

_CORRECT: Final = 'correct the line, or pass on_error="skip" to leave such lines out'


class Malformed(NamedTuple):
    """What is wrong with a line."""

    expected: str
    found: str
    column: str | None = None
    action: str = _CORRECT


class ParsedFiles(LineFiles):
    """Files whose lines may be malformed."""

    @typed
    def __init__(
        self,
        path: Path | str,
        include: str = "*",
        *,
        on_error: OnError = "fail",
        follow: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        super().__init__(
            path, include, follow=follow, chunk_bytes=chunk_bytes, max_line_bytes=max_line_bytes
        )
        require("on_error", repr(on_error), on_error in ("fail", "skip"), "'fail' or 'skip'")
        self.skip = on_error == "skip"


class ParsedReader(LineReader):
    """Parses the lines of one file."""

    left_out: ClassVar[str]
    """What is said of lines that are left out, after their number."""

    def __init__(self, source: ParsedFiles, split: str, position: Any) -> None:
        super().__init__(source, split, position)
        self._skip = source.skip

    def malformed(self, offset: int, problem: Malformed) -> None:
        """Count a line that is left out; raises CorruptObjectError where none may be."""
        if not self._skip:
            raise self.corrupt(offset, problem)
        self._source.skipped += 1
        self.count(1, self.left_out)

    def corrupt(self, offset: int, problem: Malformed) -> CorruptObjectError:
        """The error of a malformed line at an offset."""
        column = "" if problem.column is None else f", column {problem.column!r}"
        return CorruptObjectError(
            f"input file {self._path}, line {self.line_number(offset)} at byte {offset}{column}",
            expected=problem.expected,
            found=problem.found,
            action=problem.action,
        )
