"""What lay in the store at each moment of a run.

Invariant: an object counts from the end of its write until the job deletes it, whatever the
archive keeps of it.
"""

from collections.abc import Iterable, Iterator

from tidelog.bench.embedded.running import Running
from tidelog.bench.measurement import Points


def stored_over_time(running: Running, prefix: str = "") -> Points:
    """Bytes of the objects below a prefix: (seconds since the measured time began, bytes)."""
    assert running.archive is not None
    start, end = running.stages.start, running.stages.end
    assert start is not None and end is not None
    writes = [write for write in running.store.writes if write.name.startswith(prefix)]
    sizes = {write.name: write.size for write in writes}
    changes = [(write.ended, write.size) for write in writes]
    changes += [
        (deletion.at, -sizes.pop(deletion.name))
        for deletion in running.archive.deletions
        if deletion.name in sizes
    ]
    return list(_within(sorted(changes), start.wall, end.wall))


def _within(
    changes: Iterable[tuple[float, int]], start: float, end: float
) -> Iterator[tuple[float, float]]:
    total, begun = 0, False
    for at, change in changes:
        if at > end:
            break
        if at > start and not begun:
            begun = True
            yield 0.0, total
        total += change
        if begun:
            yield at - start, total
    if not begun:
        yield 0.0, total
