"""A directory in memory for what tests write: they wait for a disk most of their time otherwise.

Tests look at what files hold, at the order of syncs and at failures that they inject, never at
what a power cut leaves; so a file system in memory loses no property.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES = 8 << 30
PREFIX = "tidelog-tests-"


def use_memory_disk(config: pytest.Config) -> None:
    """Temporary files of the whole run go to memory, unless `--basetemp` or TMPDIR is given.

    Nothing happens where there is no such file system, or less room than `ROOM_BYTES`.
    """
    if hasattr(config, "workerinput") or config.option.basetemp or "TMPDIR" in os.environ:
        return
    if not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free < ROOM_BYTES:
        return
    _remove_left_over()
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=SHARED_MEMORY))
    # A server of the tests runs as another user.
    directory.chmod(0o755)
    (directory / "tmp").mkdir()
    os.environ["TMPDIR"] = str(directory / "tmp")
    tempfile.tempdir = None
    config.option.basetemp = directory / "pytest"
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))


def _remove_left_over() -> None:
    """What runs left that were killed: nothing else would give the memory back."""
    for directory in SHARED_MEMORY.glob(f"{PREFIX}*"):
        pid = directory.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(directory, ignore_errors=True)
