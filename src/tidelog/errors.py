"""Every error a user can meet.

Invariant: each message names the object or option, what was expected, what was found, what to
do next, and whether a retry is safe where one could help, and shows no secret. Library errors are
translated at the edge, never leaked.
"""

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from tidelog.credentials import masked

OLDER_CHECKPOINT: Final = (
    "restore an older checkpoint (`tidelog inspect URL --deep` says which) with "
    "`tidelog run ... --restore-checkpoint NUMBER`, in a loop of your own with "
    "`tidelog clone URL@NUMBER NEWURL`"
)
"""What to do where an object of a checkpoint is damaged or gone."""
_SHOWN: Final = re.compile(
    r"<class '(?:[\w.<>]*\.)?(?P<kind>\w+)'>"
    r"|<(?:[\w.<>]*\.)?(?P<object>\w+) object at 0x[0-9a-f]+>"
    r"|<(?:function|built-in function|bound method) (?:[\w.<>]*\.)?(?P<function>[\w<>]+)"
    r"(?: at 0x[0-9a-f]+| of <[^>]*>)?>"
)
"""What Python shows of a class, of an object that says nothing of itself but its class, and of a
function."""
_ENDS: Final = " .\n\r\t"
"""What messages of libraries end with."""


class TidelogError(Exception):
    """Base of all tidelog errors.

    `what` names the failed object or option; `retry_safe` says whether repeating the same call
    can lose or double anything (True: it cannot).
    """

    def __init__(
        self,
        what: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        action: str,
        retry_safe: bool = True,
    ) -> None:
        self.what = _plain(masked(what))
        self.expected = None if expected is None else _plain(masked(expected))
        self.found = None if found is None else _plain(masked(found))
        self.action = masked(action)
        self.retry_safe = retry_safe
        super().__init__(self._render())

    def __reduce__(self) -> tuple[Any, ...]:
        # The message alone would not do: errors cross process borders whole.
        return partial(type(self), **self._fields()), ()

    def within(self, parent: str) -> "TidelogError":
        """The same error, of a part of `parent`; the original is its cause."""
        error = type(self)(**{**self._fields(), "what": f"{parent}: {self.what}"})
        error.__cause__ = self
        return error

    def found_at(self, site: str) -> "TidelogError":
        """The same error, found at a place of the user's code, as `, at job.py:4`."""
        return type(self)(
            **{**self._fields(), "found": f"{(self.found or 'it').rstrip(_ENDS)}{site}"}
        )

    def _fields(self) -> dict[str, Any]:
        names = ("what", "expected", "found", "action", "retry_safe")
        return {name: getattr(self, name) for name in names}

    def _render(self) -> str:
        parts = [self.what.rstrip(_ENDS)]
        if self.expected is not None:
            parts.append(f"expected {self.expected.rstrip(_ENDS)}")
        if self.found is not None:
            parts.append(f"found {self.found}")
        return self._advised("; ".join(parts))

    def _advised(self, head: str) -> str:
        retry = "a retry is safe" if self.retry_safe else "do not retry before that"
        return advised(head, f"{self.action.rstrip(_ENDS)} ({retry})")


def advised(what: str, action: str) -> str:
    """What is wrong and what to do, in two sentences, also where one quotes a whole message."""
    return f"{what.rstrip(_ENDS)}. Next: {action.rstrip(_ENDS)}."


def error_fields(error: TidelogError) -> dict[str, Any]:
    """An error as JSON."""
    return {"type": type(error).__name__, **error._fields()}


class ConfigError(TidelogError):
    """An option, an argument or the definition of a job is wrong; nothing was started."""

    def _advised(self, head: str) -> str:
        # A retry changes nothing before the cause is corrected.
        return advised(head, self.action) if self.retry_safe else super()._advised(head)


class UnavailableError(ConfigError):
    """What an option names cannot be had now: a file, a directory, a port, a bucket. It may come by
    itself, so another start may help; nothing was started.
    """

    _advised = TidelogError._advised


def _plain(text: str) -> str:
    """A text without what only Python says of classes, objects and functions."""
    return _SHOWN.sub(_named, text) if "<" in text else text


def _named(shown: re.Match[str]) -> str:
    if shown["kind"]:
        return f"the class {shown['kind']}"
    if shown["object"]:
        return f"an object of {shown['object']}"
    return "a lambda" if shown["function"] == "<lambda>" else f"the function {shown['function']}"


def require(what: str, value: object, holds: bool, expected: str) -> None:
    """Raise ConfigError unless the value `holds` what is expected of it."""
    if not holds:
        raise ConfigError(what, expected=expected, found=str(value), action="correct it")


@contextmanager
def optional_library(what: str, expected: str, extra: str, more: str = "") -> Iterator[None]:
    """Raise ConfigError, which says to install tidelog with `extra`, when an import in the block
    fails; `more` follows that advice.
    """
    try:
        yield
    except ImportError as cause:
        action = f"pip install 'tidelog[{extra}]'{more}"
        raise ConfigError(what, expected=expected, found=str(cause), action=action) from cause


@contextmanager
def usable_path(
    what: str, *, expected: str, action: str, kind: type[ConfigError] = ConfigError
) -> Iterator[None]:
    """Raise ConfigError, or this kind of it, when the system refuses a user's path in the block."""
    try:
        yield
    except OSError as cause:
        reason = cause.strerror or str(cause)
        raise kind(what, expected=expected, found=reason, action=action) from cause


class StorageError(TidelogError):
    """The object store refused or failed; subclasses say how."""


class ObjectNotFoundError(StorageError):
    """The named object does not exist."""


class CheckpointNotFoundError(ConfigError, ObjectNotFoundError):
    """A store has no checkpoint of the number or name that the user chose; others may be there."""


class ObjectExistsError(StorageError):
    """A create-once write found the name taken."""


class StoreUnreachableError(StorageError):
    """No connection, a timeout, or a server error that outlived the retry deadline."""


class AccessDeniedError(StorageError):
    """Credentials are missing, wrong, or lack a permission."""


class StoreFullError(StorageError):
    """No room is left where the object should go."""


class ConditionalPutError(StorageError):
    """The store does not honour create-if-absent, so it cannot fence; unsafe to use."""


class CorruptObjectError(TidelogError):
    """Stored bytes are not what was written: truncated, bit-flipped or of another kind."""


class FormatVersionError(TidelogError):
    """The object was written by a newer format version than this release reads."""


class WorkerLostError(TidelogError):
    """A worker process of a job is gone or hangs."""


class NoMoreWorkersError(WorkerLostError):
    """The process is gone that starts the workers of a job: this run of it can start none."""


class FencedError(TidelogError):
    """A newer incarnation of the job took over; this one stops and commits nothing."""


class CheckpointFailedError(TidelogError):
    """More checkpoints in a row failed than the job tolerates."""


class SavepointFailedError(TidelogError):
    """A savepoint that was asked for was not taken."""


class ControlError(TidelogError):
    """The running job could not be asked."""


class MaterializationFailedError(TidelogError):
    """More materializations in a row failed than the job tolerates."""


class RestoreError(TidelogError):
    """A checkpoint cannot be restored into this job."""


class StateSchemaError(TidelogError):
    """A state's name, kind, schema or serializer does not fit what was stored or passed."""


class StateDefinitionError(ConfigError, StateSchemaError):
    """A program declares or uses a state wrongly, whatever is stored: no other start can help."""


class SerializationError(TidelogError):
    """Records of a type that checkpoints cannot store as in-flight data."""


class UserFunctionError(TidelogError):
    """A user's function raised, which is chained then, or returned something else than expected."""

    def _render(self) -> str:
        if self.expected is not None:
            return super()._render()
        return self._advised(f"{self.what} raised {self.found}")


class InvariantError(TidelogError):
    """tidelog found its own invariant broken; it stops before state can become wrong."""


def too_many_files(what: str, found: str) -> StorageError:
    """The error for a system that gives this process no more files."""
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    return StorageError(
        what,
        expected=f"fewer open files than the {limit} that this process may have",
        found=found,
        action=f"raise the limit with `ulimit -n` (up to {hard_limit} here) and start again: a job "
        "needs some 10 files for each subtask with state, and more where its tables are large",
    )
