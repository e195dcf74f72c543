"""What goes over a control socket: JSON, one object per line.

Invariants: a client sends one request; the server sends any number of `progress` lines and one
last line, `done` or `error`. A server refuses a version it does not know and says which it speaks;
fields it does not know are ignored. The socket is found from the URL of the job's store alone, in a
directory of one user, who alone may write to it; one that another user made is never trusted.
Clients look where the user's jobs have them by default, and in the directories that systemd makes
for units.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tidelog import errors
from tidelog.checkpoint.manifest import Savepoint, SavepointFormat
from tidelog.errors import ConfigError, StorageError, TidelogError, error_fields
from tidelog.ids import Slot, digest

DIRECTORY_VARIABLE: Final = "TIDELOG_CONTROL_DIR"
"""Environment variable with the directory of control sockets, for jobs and their clients."""
_PREFIX: Final = "tidelog-control-"
UNITS: Final = Path("/run/tidelog")
"""Below it units have their directories: RuntimeDirectory=tidelog/NAME."""


def directory() -> Path:
    """Where this user's control sockets are; raises StorageError where nobody can write."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen) if chosen else _temporary() / f"{_PREFIX}{os.getuid()}"


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise StorageError(
            "control socket",
            expected="a directory for temporary files",
            found=error.strerror,
            action=f"set {DIRECTORY_VARIABLE}, or TMPDIR, to a directory that can be written to",
        ) from error


def socket_of(url: str) -> Path:
    """The socket of the job on the store at `url`, as its store spells it."""
    return directory() / _name(url)


def other_sockets(url: str) -> Iterator[tuple[Path, int]]:
    """Sockets of jobs on this store in other directories, with the user who owns the directory:
    those of units, and of other users, which refuse us but say that a job runs.
    """
    socket_path = socket_of(url)
    paths = list(UNITS.glob(f"*/{_name(url)}"))
    with suppress(StorageError):
        paths += _temporary().glob(f"{_PREFIX}*/{_name(url)}")
    for path in paths:
        with suppress(OSError):  # gone since
            if path != socket_path:
                yield path, path.parent.lstat().st_uid


def _name(url: str) -> str:
    return f"{digest(url)}.sock"


def prepare_directory() -> None:
    """Make the directory; raises PermissionError when it belongs to somebody else."""
    path = directory()
    # Other users may list it, so that clients can name the job's owner; the sockets refuse them.
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(0, "belongs to another user, or others may write to it", str(path))


VERSION: Final = 1
LIMIT_BYTES: Final = 64 << 10
"""No request is longer."""
ANSWER_LIMIT_BYTES: Final = 16 << 20
"""No answer is longer: that to `observe` grows with the operators of the job."""

Operation = Literal["savepoint", "stop", "status", "observe", "forget"]


class Request(msgspec.Struct, frozen=True):
    """To take a savepoint, stop with one, identify, observe, or forget a dropped checkpoint."""

    store: str
    operation: Operation
    version: int = VERSION
    job: str | None = None
    """Refuse when the job is another one."""
    name: str | None = None
    format: SavepointFormat = "native"
    drain: bool = False
    timeout_s: float | None = None
    checkpoint: Slot | None = None


class Progress(msgspec.Struct, frozen=True, tag_field="event", tag="progress"):
    """How many of the subtasks have made their part of the checkpoint durable."""

    durable: int
    subtasks: int


class Done(msgspec.Struct, frozen=True, tag_field="event", tag="done", omit_defaults=True):
    """The answer; the fields of a savepoint or of the status are there when asked for."""

    job: str
    pid: int
    generation: int | None = None
    name: str | None = None
    format: SavepointFormat | None = None
    checkpoint: Slot | None = None
    final: bool = False
    status: Any = None
    """The job's `JobStatus`; its fields grow from release to release, so it is read as a dict."""
    checkpoints: Any = None
    """The recent `CompletedCheckpoint`s, oldest first; read as dicts, too."""

    @classmethod
    def of(cls, entry: Savepoint, pid: int) -> "Done":
        return cls(
            job=entry.job,
            pid=pid,
            generation=entry.author.generation,
            name=entry.name,
            format=entry.savepoint_format,
            checkpoint=entry.slot,
            final=entry.final,
        )


class Failed(msgspec.Struct, frozen=True, tag_field="event", tag="error"):
    """An error of `tidelog.errors`, by its class and its fields."""

    type: str
    what: str
    expected: str | None
    found: str | None
    action: str
    retry_safe: bool

    @classmethod
    def of(cls, error: TidelogError) -> "Failed":
        return cls(**error_fields(error))

    def error(self) -> TidelogError:
        kind = getattr(errors, self.type, TidelogError)
        if not (isinstance(kind, type) and issubclass(kind, TidelogError)):
            kind = TidelogError
        fields = msgspec.structs.asdict(self)
        del fields["type"]
        return kind(**fields)


Line = Progress | Done | Failed


class _Versioned(msgspec.Struct):
    version: int


def encode(line: Request | Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def decode_line(data: bytes) -> Line:
    """A line of a server; raises msgspec.DecodeError."""
    try:
        line: Any = msgspec.json.decode(data, type=Line)
    except (UnicodeDecodeError, RecursionError) as cause:
        raise msgspec.DecodeError(str(cause)) from cause
    return line  # type: ignore[no-any-return]  # a union is no type


def decode_request(data: bytes) -> Request:
    """A client's request; raises ConfigError."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version == VERSION:
            return msgspec.json.decode(data, type=Request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
        raise ConfigError(
            "request on the control socket",
            expected="one JSON object, see docs/guides/savepoints.md",
            found=str(cause),
            action="use the tidelog command line",
        ) from cause
    raise ConfigError(
        "request on the control socket",
        expected=f"protocol version {VERSION}",
        found=f"version {version}",
        action="use the release of tidelog that the job runs",
    )
