"""Words as files are the words of the other systems, in the same order."""

import asyncio
from pathlib import Path

from tidelog_bench.embedded.words import Words
from tidelog_bench.peers.feed import Feed

WORDS = Words(["a", "b", "c"], ["d", "e", "f", "g", "h"])


def lines(feed: Feed) -> list[str]:
    return "".join(path.read_text() for path in sorted(feed.input.iterdir())).split()


def test_files_hold_the_fill_and_then_the_stream_going_round(tmp_path: Path) -> None:
    feed = Feed(tmp_path, WORDS, piece_words=2)
    feed.fill()
    for _ in range(5):
        feed.add()

    assert lines(feed) == [*"abc", *"defgh", *"defg"]
    assert feed.position == 12
    assert feed.ends == [2, 3, 5, 7, 8, 10, 12]


def test_it_keeps_as_far_ahead_as_asked_for(tmp_path: Path) -> None:
    feed = Feed(tmp_path, WORDS, piece_words=2)
    feed.keep_ahead(position=3, words=4)

    assert feed.position == 7
    feed.keep_ahead(position=3, words=4)
    assert feed.position == 7


def test_the_fill_can_come_once_more_behind_everything(tmp_path: Path) -> None:
    feed = Feed(tmp_path, WORDS, piece_words=2)
    feed.keep_ahead(position=0, words=6)

    assert feed.again() == 3
    assert lines(feed) == [*"abc", *"defg", *"abc"]


def test_a_mark_ends_each_file_and_is_no_word(tmp_path: Path) -> None:
    feed = Feed(tmp_path, WORDS, piece_words=2, mark="#")
    feed.fill()

    assert lines(feed) == ["a", "b", "#", "c", "#"]
    assert feed.position == 3


def test_a_system_that_is_kept_busy_has_a_piece_before_it_whatever_it_has_read(
    tmp_path: Path,
) -> None:
    feed = Feed(tmp_path, WORDS, piece_words=2)
    read = iter([0, 3, 6, 9, 12, 15])
    reached: list[int] = []

    def position() -> int:
        reached.append(next(read))
        # Was enough there at the look before?
        assert len(reached) == 1 or feed.position >= reached[-2] + 2
        return reached[-1]

    asyncio.run(feed.keep_busy(position, seconds=0.3, ahead_s=0.0))

    assert len(reached) > 1
