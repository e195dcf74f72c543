"""What a program's own sink must not give is named when it gives it, not by a restore."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.first_jobs.programs import run
from tidelog import Job, Replayable, Sink, SinkContext, SinkWriter, TidelogError


class Writer(SinkWriter):
    def write(self, records: Sequence[Any]) -> None:
        """Writes nothing."""


class Texts(Writer):
    def pre_commit(self, checkpoint: int) -> Any:
        return "a text"


class Awaiting(Writer):
    async def write(self, records: Sequence[Any]) -> None:  # type: ignore[override]
        raise AssertionError("nobody awaits it")


class Mistaken(Sink):
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def open(self, context: SinkContext) -> Any:
        return self._writer


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        (None, "writer of sink 'sink'; expected a SinkWriter"),
        (Awaiting(), "a SinkWriter without `async` methods"),
        (Texts(), r"sink; expected bytes or None from pre_commit\(\); found a str"),
    ],
)
def test_what_a_sink_must_not_give_is_named(writer: Any, error: str, tmp_path: Path) -> None:
    job = Job("mistaken")
    job.source(Replayable([1, 2])).map(lambda n: n).sink(Mistaken(writer))
    with pytest.raises(TidelogError, match=error):
        run(job, tmp_path)
