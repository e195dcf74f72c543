"""What commands print: JSON, tables on a terminal, plain columns elsewhere.

Invariants: with --json standard output holds JSON and nothing else; results go to standard
output, progress and errors to standard error.
"""

import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import click
import msgspec

from tidelog.checkpoint.finding import Finding
from tidelog.cli.logs import say
from tidelog.cli.values import seconds_text, size
from tidelog.credentials import masked, shows_records
from tidelog.errors import InvariantError, TidelogError, error_fields, usable_path
from tidelog.storage.errors import from_os_error

_SOME: Final = 5

Cell = str | int | None
Column = str | tuple[str, Callable[[Any], Cell]] | tuple[str, str, Callable[[Any], Cell]]
"""A field, whose name says its unit and is the heading; or a heading and what stands below it, made
of the row, or of a field that is known.
"""


class Rows:
    """A table: a line for each row, a column for each field that is to be shown of it."""

    def __init__(self, rows: Iterable[Any], *columns: Column) -> None:
        headed_cells = list(map(_shown, columns))
        self.headings = [heading for heading, _ in headed_cells]
        self.cells: list[list[Cell]] = []
        for row in rows:
            self.cells.append([cell(row) for _, cell in headed_cells])

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers or nothing: these are aligned to the right."""
        numeric = [True] * len(self.headings)
        for row in self.cells:
            for column, cell in enumerate(row):
                numeric[column] &= cell is None or isinstance(cell, int)
        return numeric


def _shown(column: Column) -> tuple[str, Callable[[Any], Cell]]:
    match column:
        case str():
            heading = column.removesuffix("_bytes").removesuffix("_s").replace("_", " ")
            return heading, partial(_field, column, partial(_by_unit, column))
        case heading, name, show:
            return heading, partial(_field, name, show)
        case _:
            return column


def _field(name: str, show: Callable[[Any], Cell], row: Any) -> Cell:
    value = row[name] if isinstance(row, dict) else getattr(row, name)
    return None if value is None else show(value)


def _by_unit(name: str, value: Any) -> Cell:
    match name.rpartition("_")[2], value:
        case _, bool():
            return "yes" if value else "no"
        case "bytes" | "size", _:
            return size(value)
        case "s", _:
            return seconds_text(value)
        case "ms", float():
            return f"{value:.1f}"
        case _:
            return value if isinstance(value, int) else str(value)


class Step(Protocol):
    """Shows how far something is, and `what` when that has changed."""

    def __call__(self, done: float, total: float, what: str | None = None) -> None: ...


@contextmanager
def printing() -> Iterator[None]:
    """Raise StorageError when standard output takes no more: its disk is full. A reader that has
    gone is none of tidelog's errors: click ends quietly.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise from_os_error(error, "standard output") from error


class Output(msgspec.Struct, frozen=True):
    """Prints for one command; raises StorageError when standard output takes no more."""

    as_json: bool

    def document(self, document: object) -> None:
        """Print one JSON document, indented."""
        data = msgspec.json.encode(document, order="deterministic")
        with printing():
            click.echo(msgspec.json.format(data, indent=2))

    def json_line(self, document: object) -> None:
        with printing():
            click.echo(msgspec.json.encode(document))

    def line(self, line: str = "") -> None:
        with printing():
            click.echo(printable(line))

    def show(self, document: object, *parts: str | Rows) -> None:
        """Print the result of a command: the document with --json, else lines and tables."""
        if self.as_json:
            self.document(document)
            return
        for part in parts:
            if not isinstance(part, Rows):
                self.line(part)
                continue
            with printing():
                if sys.stdout.isatty():
                    _rich_table(part)
                else:
                    _plain_table(part)

    def error(self, error: TidelogError) -> None:
        if self.as_json:
            click.echo(msgspec.json.encode({"error": error_fields(error)}), err=True)
        else:
            say(f"Error: {error}", logging.ERROR)

    @contextmanager
    def progress(self, what: str) -> Iterator[Step]:
        """A progress bar with the time left, on a terminal."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda done, total, what=None: None
            return
        # Heavy: only a terminal pays for it.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import Progress  # noqa: PLC0415

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total, what=None: bar.update(
                task, completed=done, total=total, description=what
            )


def fields_of(value: object, *without: str) -> dict[str, Any]:
    """The fields of a dataclass or Struct as JSON, but for some."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return {name: field for name, field in fields.items() if name not in without}


def finding_lines(finding: Finding, kind: str) -> Iterator[str]:
    """What is wrong with a store, for people; `kind` says checkpoint or batch."""
    yield ""
    yield f"{finding.where} ({finding.check})"
    yield f"  expected {finding.expected}; found {finding.found}"
    if finding.partitions:
        yield f"  partition: {some(finding.partitions)}"
    for effect, numbers in (("unusable", finding.unusable), ("doubtful", finding.doubtful)):
        if numbers:
            yield f"  makes {effect}: {kind} {some(numbers)}"
    yield f"  next: {finding.action}"


def some(items: Sequence[object]) -> str:
    """A few of them; the JSON has all."""
    listed = ", ".join(map(str, items[:_SOME]))
    return f"{listed} and {len(items) - _SOME} more" if len(items) > _SOME else listed


def defect(cause: Exception) -> InvariantError:
    """The error to report for an exception nobody translated."""
    error = InvariantError(
        "tidelog itself",
        expected="no error but its own",
        found=f"{type(cause).__name__}: {cause}",
        action="run again with --debug and report the traceback; no durable state is lost",
    )
    error.__cause__ = cause
    return error


def print_traceback(error: BaseException) -> None:
    """Print the traceback of an error and of its causes, whose texts are those of libraries."""
    lines = traceback.format_exception(error) if shows_records() else _without_texts(error)
    say(masked("".join(lines)).rstrip("\n"), logging.ERROR)


def _without_texts(error: BaseException) -> list[str]:
    """A traceback whose causes have no texts: these may show values of records."""
    cause = error.__cause__
    lines = [] if cause is None else [*_without_texts(cause), "\nThe cause of:\n\n"]
    lines += traceback.format_tb(error.__traceback__)
    text = f": {error}" if isinstance(error, TidelogError) else ""
    return [*lines, f"{type(error).__name__}{text}\n"]


def printable(text: str) -> str:
    """The text with an escape for each character that the encoding of standard output lacks."""
    encoding = sys.stdout.encoding
    return text.encode(encoding, "backslashreplace").decode(encoding)


def text(value: object) -> str:
    """A decoded value for people: as JSON."""
    return msgspec.json.encode(value).decode()


def _text(cell: Cell) -> str:
    return "-" if cell is None else str(cell)


def _plain_table(table: Rows) -> None:
    lines = [table.headings]
    for row in table.cells:
        lines.append(list(map(_text, row)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = table.numeric
    for line in lines:
        cells = zip(line, widths, right, strict=True)
        padded = (c.rjust(w) if numeric else c.ljust(w) for c, w, numeric in cells)
        click.echo(printable("  ".join(padded).rstrip()))


def _rich_table(rows: Rows) -> None:
    # Heavy: only a terminal pays for it.
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name, numeric in zip(rows.headings, rows.numeric, strict=True):
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows.cells:
        # As text: names may contain what rich takes for markup.
        table.add_row(*(Text(printable(_text(cell))) for cell in row))
    Console().print(table)


def write_output(target: Path, data: bytes) -> None:
    """Write the file of `--output`; raises ConfigError."""
    expected, action = "a file that can be written", "choose another path"
    with usable_path(f"--output {target}", expected=expected, action=action):
        target.write_bytes(data)
