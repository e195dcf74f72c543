"""What the C library's malloc keeps of freed memory, in a process that runs one job.

Invariant: settings in the environment win, and where there is no glibc nothing happens.
"""

import ctypes
import os
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_MMAP_FROM: Final = 256 << 10
"""glibc raises its own threshold, from 128 KiB up to 32 MiB, whenever such a block is freed: then
blocks of the log and of tables lie between small objects, and what is freed stays with the process.
"""
_ARENAS: Final = 2
"""Each arena keeps what was freed in it, and few threads seal, upload or compact at a time."""
_ENVIRONMENT: Final = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


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
    return bool(mallopt(_M_ARENA_MAX, _ARENAS) and mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM))
