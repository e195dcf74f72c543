"""What several workers need and one makes: jars and archives, for which the others wait."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.effects import cache_directory


@contextmanager
def by_one_process(name: str) -> Iterator[None]:
    """Held by one process at a time; who comes next finds in the cache what the first has made."""
    path = cache_directory() / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
