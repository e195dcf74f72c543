"""Words as files, for systems whose source is a directory, and the measurement of a job that reads
them.

Invariants: the files hold a word a line, the fill and then the stream, as often round as needed, in
the order of `Stages`; a file appears whole, by a hard link, and its name sorts after all before it.
Both moments of a measurement are taken when the position is as new as the job gives it, so a delay
of what it says shifts both and changes no rate.
"""

import os
from collections.abc import Callable, Sequence
from itertools import chain, cycle
from pathlib import Path
from typing import Final, Protocol

from tidelog_bench.embedded.meter import CLOCK, tree_mark
from tidelog_bench.embedded.words import Words
from tidelog_bench.peers.task import Task

PIECE: Final = 262_144
"""Words in a file; listing many small ones, four times a second, would cost what counting does."""
LOOK_S: Final = 0.2


class FollowingJob(Protocol):
    """A running word count; all methods raise when it runs no more."""

    ahead_s: float
    """Files hold what the job reads in so many seconds, until it sees further ones."""
    least_pieces: int
    """So many files are ahead at least, for a job whose position is too old to tell its speed."""
    until_durable: int
    """So many checkpoints later all that the source has read is durable."""

    def position(self) -> int:
        """Words that the source has read."""

    async def newest_position(self) -> int:
        """The position, once it is as new as it ever is."""

    def checkpoints(self) -> int:
        """How many have completed."""


class Feed:
    """Hands out words in pieces of at most `piece_words`."""

    def __init__(self, directory: Path, words: Words, piece_words: int) -> None:
        self.input = directory / "input"
        self.input.mkdir()
        self._piece_words = piece_words
        self.position = 0
        """How many words were handed out."""
        self.ends: list[int] = []
        """The position after each file."""
        self._pieces = directory / "pieces"
        self._pieces.mkdir()
        self._fill = self._cut("fill", words.fill)
        stream = self._cut("stream", words.stream)
        self._left = chain(self._fill, cycle(stream))

    def add(self) -> None:
        """Let the next file appear."""
        self._appear(*next(self._left))

    def fill(self) -> None:
        """Let all words of the fill appear, before anything else."""
        for _ in self._fill:
            self.add()

    async def keep_busy(self, job: FollowingJob, seconds: float) -> None:
        """Keep a job busy for some time: pieces ahead at least, and what its speed asks for."""
        began, first = CLOCK.monotonic(), job.position()
        now, reached, speed = began, first, 0.0
        while now < began + seconds:
            if now > began:
                speed = max(speed, (reached - first) / (now - began))
            ahead = max(job.least_pieces * self._piece_words, int(speed * job.ahead_s))
            while self.position < reached + ahead:
                self.add()
            await CLOCK.sleep(LOOK_S)
            now, reached = CLOCK.monotonic(), job.position()

    def again(self) -> None:
        """Let the fill appear once more, after everything."""
        for path, size in self._fill:
            self._appear(path, size)

    def _appear(self, path: Path, size: int) -> None:
        os.link(path, self.input / f"{len(self.ends):08}.txt")
        self.position += size
        self.ends.append(self.position)

    def _cut(self, name: str, words: Sequence[str]) -> list[tuple[Path, int]]:
        pieces = []
        for start in range(0, len(words), self._piece_words):
            piece = words[start : start + self._piece_words]
            path = self._pieces / f"{name}-{start:012}.txt"
            path.write_text("\n".join(piece) + "\n")
            pieces.append((path, len(piece)))
        return pieces


async def measured(job: FollowingJob, feed: Feed, task: Task) -> dict[str, float]:
    """Figures between the two moments; the last checkpoint has all words of the feed."""
    await _until(lambda: job.position() >= feed.position)
    await feed.keep_busy(job, task.warm_s)
    start, before = tree_mark(await job.newest_position()), job.checkpoints()
    await feed.keep_busy(job, task.seconds)
    end, after = tree_mark(await job.newest_position()), job.checkpoints()
    await _until(lambda: job.position() >= feed.position)
    complete = job.checkpoints() + job.until_durable
    await _until(lambda: job.position() >= 0 and job.checkpoints() >= complete)
    return task.figures(start, end, after - before)


async def _until(reached: Callable[[], bool]) -> None:
    while not reached():
        await CLOCK.sleep(LOOK_S)
