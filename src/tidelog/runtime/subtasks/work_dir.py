"""The local directory of a job incarnation: tables and snapshots, worthless after a crash.

Invariant: a directory belongs to one living process; those of dead processes are removed.
"""

import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path

from tidelog.events import Event
from tidelog.storage import errors
from tidelog.storage.disk import is_running

logger = logging.getLogger(__name__)


def open_work_dir(base: Path | None, store_url: str) -> Path:
    """A fresh directory; leftovers of crashed incarnations of the same store go away.

    Raises StorageError and its kinds when the disk refuses.
    """
    root = base or Path(tempfile.gettempdir()) / "tidelog"
    digest = hashlib.blake2b(store_url.encode(), digest_size=8).hexdigest()
    parent = root / digest
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for leftover in parent.iterdir():
            pid = leftover.name.partition("-")[0]
            if pid.isdigit() and not is_running(int(pid)):
                remove_work_dir(leftover)
        return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    except OSError as error:
        raise errors.from_os_error(error, f"work directory {parent}") from error


def remove_work_dir(directory: Path) -> None:
    """Remove an incarnation's directory as far as possible."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        Event.FILE_NOT_DELETED.log(logger, path=directory, error=error)
        shutil.rmtree(directory, ignore_errors=True)  # what can be removed, at least
