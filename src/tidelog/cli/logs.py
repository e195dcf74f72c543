"""What a command says on standard error: log records, and lines of its own in the same form.

Invariants: records go to standard error, so standard output holds results only; in JSON every line
is a document; no secret is in them, whichever library logged it; those of a job's worker name it.
"""

import logging
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from copy import copy
from datetime import UTC, datetime
from typing import Final

import click

from tidelog.credentials import masked

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OF_WORKER = logging.Formatter(_TEXT.replace("%(name)s", "%(processName)s %(name)s"))


REPEATED_S: Final = 2.0
"""Warnings that are equal are written once in this time, and then how often they came."""


class Repetitions:
    """Warnings with the text of an earlier one: within `REPEATED_S` they are only counted."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], logging.LogRecord] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def admit(self, record: logging.LogRecord) -> list[logging.LogRecord]:
        """What is to be written now: counts that are due, and the record unless it is counted."""
        records = self._due(record.created)
        text = record.name, record.getMessage()
        if record.levelno < logging.WARNING:
            return [*records, record]
        if text in self._first:
            self._counts[text] += 1
            return records
        self._first[text] = record
        return [*records, record]

    def rest(self) -> list[logging.LogRecord]:
        """The counts that are not written yet."""
        return self._due(math.inf)

    def _due(self, now_s: float) -> list[logging.LogRecord]:
        records: list[logging.LogRecord] = []
        while self._first:
            text, first = next(iter(self._first.items()))
            if first.created > now_s - REPEATED_S:
                break
            del self._first[text]
            if count := self._counts.pop(text, 0):
                repeated = copy(first)
                repeated.repeated, repeated.exc_info = count, None
                records.append(repeated)
        return records


class _StandardError(logging.Handler):
    """Writes to what standard error is at the moment: a live view replaces it."""

    def __init__(self) -> None:
        super().__init__()
        self._repetitions = Repetitions()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(self._repetitions.admit(record))
        except Exception:
            self.handleError(record)

    def write_rest(self) -> None:
        """Write what was only counted, at the end of the command."""
        with self.lock or nullcontext(), suppress(OSError):
            self._write(self._repetitions.rest())

    def _write(self, records: Iterable[logging.LogRecord]) -> None:
        for record in records:
            sys.stderr.write(f"{masked(self.format(record))}\n")


def say(line: str, level: int = logging.INFO) -> None:
    """Print a line on standard error, as a document where log records are documents."""
    click.echo(in_form(line, level), err=True)


def in_form(line: str, level: int) -> str:
    """A line as the log records are, a document or itself."""
    return _document(line, level) if in_documents() else line


def in_documents() -> bool:
    """Whether the user wants what is said on standard error as JSON."""
    context = click.get_current_context(silent=True)
    return context is not None and context.find_root().params.get("log_format") == "json"


def _document(line: str, level: int) -> str:
    record = logging.LogRecord("tidelog.cli", level, "", 0, line, None, None)
    return masked(_JsonFormatter().format(record))


def _worker(record: logging.LogRecord) -> int | None:
    """The number of the worker that logged it; None for a process that is none."""
    kind, _, number = (record.processName or "").partition(" ")
    return int(number) if kind == "worker" and number.isdecimal() else None


class _TextFormatter(logging.Formatter):
    """One line per record, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record) if _worker(record) is None else _OF_WORKER.format(record)
        repeated = getattr(record, "repeated", 0)
        times = "once more" if repeated == 1 else f"{repeated} more times"
        return f"{text} ({times} within {REPEATED_S:g} s)" if repeated else text


class _JsonFormatter(logging.Formatter):
    """One JSON document per record: time, level, logger, worker, event, message and fields."""

    def format(self, record: logging.LogRecord) -> str:
        import msgspec  # noqa: PLC0415  # takes as long as click, and most logs are text

        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "worker": _worker(record),
            "event": getattr(record, "event", None),
            "message": record.getMessage(),
            "fields": record.args if isinstance(record.args, Mapping) else {},
        }
        if repeated := getattr(record, "repeated", 0):
            document["repeated"] = repeated
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(document, enc_hook=str).decode()


def show_logs(context: click.Context, level: str, form: str) -> None:
    """Show tidelog's records from `level` on, and warnings of others, until the command ends."""
    handler = _StandardError()
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter(_TEXT))
    root, logger = logging.getLogger(), logging.getLogger("tidelog")
    before = logger.level
    root.addHandler(handler)
    logger.setLevel(level.upper())
    context.call_on_close(lambda: root.removeHandler(handler))
    context.call_on_close(handler.write_rest)
    context.call_on_close(lambda: logger.setLevel(before))
