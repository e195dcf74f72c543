"""The job of `tidelog_files`: a module of its own, as `tidelog run` imports it."""

import operator
from pathlib import Path

from tidelog import Job, JobArguments, TextFiles
from tidelog.runtime.sink import Sink
from tidelog_bench.embedded.jobs import NullSink
from tidelog_bench.embedded.words import counted


def followed(arguments: JobArguments) -> Job:
    """Count the lines of files that go on appearing in the input directory; never ends."""
    return word_count(arguments.required_input(), NullSink(), follow=True)


def word_count(source: Path, sink: Sink, *, follow: bool) -> Job:
    """Count lines of files; nothing is emitted before the end."""
    job = Job("word-count")
    words = job.source(TextFiles(source, follow=follow)).map_batches(counted)
    pairs = words.key_by(operator.itemgetter(0))
    pairs.aggregate(operator.itemgetter(1), operator.add, name="count").sink(sink)
    return job
