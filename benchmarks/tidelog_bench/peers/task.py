"""What a program is asked to do, and what it answers; both cross process borders as JSON. And
whether a system counted right: its counts against those of a plain dict.

Invariants: all programs of a pair get the same words, and the same seconds of warm-up and measure.
Compared is what a system restored from what it had made durable, never what it still had in memory,
so figures stand only where a recovery works; where it takes a second start of a system, once for
all pairs of a session.
"""

import collections
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, cycle, islice
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog_bench.embedded.meter import Mark, rates, size_mb, tree_peak_mb
from tidelog_bench.embedded.words import Stages, Words, Workload, draw

DO_NOT_USE = "do not use figures of this system before its program or the system is repaired"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTask:
    """What every program is given."""

    variant: str
    """The system to run; a program may serve several."""
    checkpoint_s: float
    seed: int
    directory: str
    """For all that the program writes; its `durable` is what a restart reads."""

    @property
    def path(self) -> Path:
        return Path(self.directory)

    @property
    def durable(self) -> Path:
        """Where the system keeps what survives the process."""
        return self.path / "durable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(ProgramTask):
    """A word count to be measured; times in seconds."""

    keys: int
    key_bytes: int
    draws: int
    warm_s: float
    seconds: float
    batch_words: int
    """Words per file, where words come from files; Spark's batch is one file."""
    restarts: bool = True
    """Whether a system whose counts can only be read by starting it again is checked."""

    def words(self) -> Words:
        return draw(Workload(self.keys, self.key_bytes, self.draws), self.seed)

    def stages(self, words: Words) -> Stages:
        """Fill, warm-up, measurement: for a system whose source is a Python function."""
        return Stages(words, warm_s=self.warm_s, seconds=self.seconds)

    def figures(self, start: Mark, end: Mark, commits: int) -> dict[str, float]:
        """Throughput, cost, commits between two moments; peak memory and durable bytes."""
        return {
            **rates(start, end),
            "commits": commits,
            "durable_mb": size_mb(self.durable),
            "peak_mb": round(tree_peak_mb()),
        }

    def check(self, found: Mapping[str, int], words: Words, position: int) -> None:
        """Raise TidelogError unless the counts that were restored are those of the first `position`
        words: of the fill, then of the stream as often round as it took.
        """
        right = collections.Counter(islice(chain(words.fill, cycle(words.stream)), position))
        if found == right:
            return
        wrong = [word for word in right.keys() | found.keys() if found.get(word) != right.get(word)]
        word = min(wrong)
        raise TidelogError(
            f"counts that {self.variant} restored",
            expected=f"{len(right)} words, {right.get(word)} times {word[:24]}",
            found=f"{len(found)} words, {found.get(word)} times {word[:24]}, {len(wrong)} differ",
            action=DO_NOT_USE,
        )
