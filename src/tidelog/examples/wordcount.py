"""Word count: how often each word occurs in a tree of text files.

Words are what `str.split` makes of a line. Results are {"word": ..., "count": ...}, each word
once, at the end of the input.
"""

from collections import Counter
from collections.abc import Iterable
from operator import add, itemgetter

from tidelog import Job, JobArguments, TextFileSource
from tidelog.examples import output_sink


def job(arguments: JobArguments) -> Job:
    """Counts the words of `--input`; raises ConfigError when there is none."""
    lines = TextFileSource(
        arguments.required_input(), include=arguments.include, follow=arguments.follow
    )
    word, count = itemgetter(0), itemgetter(1)
    counting = Job("wordcount")
    (
        counting.source(lines)
        .map_batches(count_words)
        .key_by(word)
        .aggregate(count, add, emit_updates=arguments.follow, name="count")
        .sink(output_sink(arguments, fields=("word", "count")))
    )
    return counting


def count_words(lines: Iterable[str]) -> list[tuple[str, int]]:
    """The words of a buffer with their counts: a hot word crosses the network of tasks once."""
    return list(Counter(" ".join(lines).split()).items())
