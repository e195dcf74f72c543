"""The job that is killed: numbers each key's messages, and writes them to SQLite exactly once."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidelog import (
    Job,
    JobArguments,
    KafkaRecord,
    KafkaSource,
    SqliteSink,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

COLUMNS = {"key": "text", "number": "integer", "seen": "integer"}


class Seen(StatefulProcessor):
    """How many messages of the key there were, this one included."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "n long")

    def handleInputRows(
        self, key: Any, rows: Iterator[KafkaRecord], timerValues: TimerValues
    ) -> Iterator[tuple[str, int, int]]:
        (seen,) = self._seen.get() or (0,)
        for row in rows:
            seen += 1
            yield row.key, row.value, seen
        self._seen.update((seen,))


def job(_: JobArguments) -> Job:
    """Reads on until it is released, then to the end of what is there; what the harness of all such
    tests passes is not read."""
    released = Path(os.environ["TIDELOG_TEST_RELEASE"]).exists()
    source = KafkaSource(
        os.environ["TIDELOG_TEST_TOPIC"],
        bootstrap=os.environ["TIDELOG_TEST_BROKER"],
        key="text",
        value="json",
        stop="latest" if released else None,
    )
    numbered = Job("numbered")
    seen = numbered.source(source).key_by(lambda record: record.key).transform_with_state(Seen)
    seen.sink(SqliteSink(os.environ["TIDELOG_TEST_DATABASE"], "numbers", COLUMNS))
    return numbered
