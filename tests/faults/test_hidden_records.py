"""With `show_records` off no value of a record is in an error, a log record or a traceback."""

import json
from pathlib import Path

import pytest

from tests.support.cli import tidelog

SECRET = "4711-0815"

PROGRAM = """
from tidelog import *


class Cards(StatefulProcessor):
    def init(self, handle):
        self.state = handle.getValueState("card", "card long")

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            {handler}
        return iter(())


def job(arguments):
    job = Job("cards")
    rows = job.source({source}(arguments.input))
    {stream}.sink({sink})
    return job
"""

STREAMS = {
    "map": "rows.map(lambda row: int(row.card))",
    "raise": "rows.map(lambda row: {}[row.card])",
    "key": "rows.key_by(lambda row: [row.card].index(0)).count()",
    "event time": "rows.event_time(lambda row: row.card)",
    "aggregate": "rows.key_by(lambda row: row.card).reduce(lambda a, b: a.x)",
    "workers": "rows.map(lambda row: int(row.card))",
    "state": "rows.key_by(lambda row: row.card).transform_with_state(Cards)",
    "handler": "rows.key_by(lambda row: row.card).transform_with_state(Cards)",
    "sink": "rows",
    "source": "rows",
}
HANDLERS = {"state": "self.state.update((row.card,))", "handler": "self.state.update(1 / 0)"}
SINKS = {"sink": "ForeachSink(lambda row: row.card + 1)"}
SOURCES = {"source": "CsvSource"}


def write(here: Path, name: str) -> Path:
    text = PROGRAM.format(
        handler=HANDLERS.get(name, "pass"),
        stream=STREAMS[name],
        sink=SINKS.get(name, "StdoutSink()"),
        source=SOURCES.get(name, "JsonLinesSource"),
    )
    program = here / f"cards_{name.replace(' ', '_')}.py"
    program.write_text(text)
    (here / "input").mkdir()
    lines = [json.dumps({"card": SECRET})] * 2
    if name == "source":
        lines = ["card", f"{SECRET},{SECRET}"]
    (here / "input" / "all.csv").write_text("\n".join([*lines, ""]))
    return program


@pytest.mark.parametrize("name", STREAMS)
def test_an_error_shows_no_value_of_a_record(name: str, tmp_path: Path) -> None:
    program = write(tmp_path, name)
    command = ["run", f"{program}:job", "--input", tmp_path / "input", "--debug", "--json"]
    command += ["--workers", "2", "--restarts", "0"] if name == "workers" else []
    level = ["--log-level", "debug"]
    shown = tidelog(*level, *command, "--store", tmp_path / "shown")
    assert SECRET in shown.stdout + shown.stderr, "it would be there"
    hidden = tidelog(*level, *command, "--store", tmp_path / "hidden", "--no-show-records")
    assert hidden.exit_code == shown.exit_code == 1
    assert "Next: " in hidden.stderr and "Traceback" in shown.stderr
    assert SECRET not in hidden.stdout + hidden.stderr
