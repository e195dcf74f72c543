"""Whether a system counted right: its counts against those of a plain dict.

Invariant: compared is what a system restored from what it had made durable, never what it still
held in memory, so a figure stands only beside a recovery that works.
"""

import collections
from collections.abc import Mapping

from tidelog.errors import TidelogError
from tidelog_bench.embedded.words import Words


def expected(words: Words, position: int) -> collections.Counter[str]:
    """Counts after `position` words: the fill, then the stream as often round as it took."""
    counts = collections.Counter(words.fill[:position])
    streamed = max(0, position - len(words.fill))
    rounds, rest = divmod(streamed, len(words.stream)) if words.stream else (0, 0)
    if rounds:
        for word, count in collections.Counter(words.stream).items():
            counts[word] += rounds * count
    counts.update(words.stream[:rest])
    return counts


def check(system: str, found: Mapping[str, int], words: Words, position: int) -> None:
    """Raise TidelogError unless the counts are those of the first `position` words."""
    right = expected(words, position)
    if found == right:
        return
    wrong = [word for word in right.keys() | found.keys() if found.get(word) != right.get(word)]
    word = min(wrong)
    raise TidelogError(
        f"counts that {system} restored",
        expected=f"{len(right)} words, {right.get(word)} times {word[:24]}",
        found=f"{len(found)} words, {found.get(word)} times {word[:24]}, {len(wrong)} differ",
        action="do not use figures of this system before its program or the system is repaired",
    )
