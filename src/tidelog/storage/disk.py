"""Directories that survive a crash, and whether the process that left something behind lives.

Functions here raise OSError; their callers know what to call the thing that failed.
"""

import os
from pathlib import Path


def make_directory(directory: Path, *, durable: bool = True) -> None:
    """Create a directory and what is missing above it; durable: also its name survives."""
    if directory.is_dir():
        return
    make_directory(directory.parent, durable=durable)
    directory.mkdir(exist_ok=True)
    if durable:
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_running(pid: int) -> bool:
    """Whether a process of that number lives on this machine; unsure counts as yes."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
