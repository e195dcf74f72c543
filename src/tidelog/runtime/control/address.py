"""Where the control socket of a job is: found from the URL of its store alone.

Invariants: the directory belongs to one user, who alone may write to it; a socket that another
user made there is never trusted.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

DIRECTORY_VARIABLE: Final = "TIDELOG_CONTROL_DIR"
"""Environment variable with the directory of control sockets, for jobs and their clients."""
_PREFIX: Final = "tidelog-control-"


def directory() -> Path:
    """Where this user's control sockets are."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}"


def socket_of(url: str) -> Path:
    """The socket of the job on the store at `url`, as its store spells it."""
    return directory() / _name(url)


def sockets_of_others(url: str) -> Iterator[Path]:
    """Sockets of other users' jobs on this store; they refuse us, but say that a job runs."""
    own = socket_of(url)
    for found in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_name(url)}"):
        if found != own:
            yield found


def _name(url: str) -> str:
    return hashlib.blake2b(url.encode(), digest_size=8).hexdigest() + ".sock"


def prepare_directory() -> None:
    """Make the directory; raises PermissionError when it belongs to somebody else."""
    path = directory()
    # Other users may list it, so that clients can name the job's owner; the sockets refuse them.
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(0, "belongs to another user, or others may write to it", str(path))
