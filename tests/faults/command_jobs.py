"""A job for the command line, once with a mistake in it and once without."""

from collections.abc import Callable

from tests.faults.counting import POISON, WORDS, counting, refuse_poison
from tests.support.pipelines import Portions
from tidelog import ConfigError, FileSink, Job, JobArguments

number = 7


def _job(arguments: JobArguments, check: Callable[[str], str]) -> Job:
    if arguments.output is None:
        raise ConfigError("--output", expected="a directory", action="name one")
    words = Portions({"left": [*WORDS, POISON], "right": WORDS}, pause=0.03)
    return counting(FileSink(arguments.output, fields=("word", "count")), check, read=words)


def broken(arguments: JobArguments) -> Job:
    return _job(arguments, refuse_poison)


def mended(arguments: JobArguments) -> Job:
    return _job(arguments, str)


def nothing() -> None:
    """No job at all."""


def raising() -> Job:
    raise RuntimeError("no luck")
