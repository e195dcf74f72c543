"""The measurement of a job that reads the files of a feed and says how far it is.

Invariant: both moments are taken when the position is as new as the job gives it, so a delay of
what it says shifts both and changes no rate.
"""

from collections.abc import Callable
from typing import Final, Protocol

from tidelog_bench.embedded.meter import CLOCK
from tidelog_bench.peers.feed import Feed
from tidelog_bench.peers.task import Task
from tidelog_bench.peers.usage import figures, tree_mark

LOOK_S: Final = 0.2


class FollowingJob(Protocol):
    """A running word count; all methods raise when it runs no more."""

    ahead_s: float
    """Files hold what the job reads in so many seconds, until it sees further ones."""
    least_pieces: int
    """So many files are ahead at least, for a job whose position is too old to tell its speed."""

    def position(self) -> int:
        """Words that the source has read."""

    async def newest_position(self) -> int:
        """The position, once it is as new as it ever is."""

    def checkpoints(self) -> int:
        """How many have completed."""


async def measured(job: FollowingJob, feed: Feed, task: Task) -> dict[str, float]:
    """Figures between the two moments; the last checkpoint has all words of the feed."""
    await _until(lambda: job.position() >= feed.position)
    await feed.keep_busy(job.position, task.warm_s, job.ahead_s, job.least_pieces)
    start, before = tree_mark(await job.newest_position()), job.checkpoints()
    await feed.keep_busy(job.position, task.seconds, job.ahead_s, job.least_pieces)
    end, after = tree_mark(await job.newest_position()), job.checkpoints()
    await _until(lambda: job.position() >= feed.position)
    # One may have begun before the last words; the one after it has them all.
    complete = job.checkpoints() + 2
    await _until(lambda: job.position() >= 0 and job.checkpoints() >= complete)
    return figures(start, end, after - before, task.durable)


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():
        await CLOCK.sleep(LOOK_S)
