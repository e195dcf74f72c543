"""A process that runs one job: what malloc keeps, and open files.

Invariant: malloc's settings in the environment win, and where there is no glibc nothing happens.
"""

import ctypes
import os
import resource
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_MMAP_FROM: Final = 1 << 20
"""glibc raises its own threshold, from 128 KiB up to 32 MiB, whenever such a block is freed: then
blocks of the log and of tables lie between small objects, and what is freed stays with the process.
Buffers of records are smaller than this: the system would clear their pages each time.
"""
_FREE_ON_TOP: Final = 4 << 20
"""The heap shrinks when so much is free at its end; glibc would take 128 KiB."""
_ARENAS: Final = 2
"""Each arena keeps what was freed in it, and few threads seal, upload or compact at a time."""
_MALLOC: Final = {
    _M_ARENA_MAX: _ARENAS,
    _M_MMAP_THRESHOLD: _MMAP_FROM,
    _M_TRIM_THRESHOLD: _FREE_ON_TOP,
}
_ENVIRONMENT: Final = (
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "GLIBC_TUNABLES",
)


def return_freed_memory() -> bool:
    """Make malloc return large blocks to the system at once; False when it cannot be set.

    Call it before any thread is started. docs/decisions/009-memory.md has the numbers.
    """
    if any(name in os.environ for name in _ENVIRONMENT):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # others have a mallopt that does nothing
        mallopt = library.mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(setting, value) for setting, value in _MALLOC.items())


def allow_many_files() -> None:
    """Raise the limit of open files as far as the system lets this process: tables need many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
