"""Mistakes of a first hour: each ends with what is wrong, where, and what to do, and no traceback.

A mistake of the definition ends with 2, what a record shows with 1.
"""

import json
from pathlib import Path

import pytest

from tests.support.cli import tidelog

ROWS = [{"k": "a", "n": 1, "t": 1_000}, {"k": "b", "n": 2, "t": 2_000}]

PROCESSOR = """
class P(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.state = handle.getValueState("state", {schema!r})

    def handleInputRows(self, key, rows, timerValues):
        {handler}
"""
KEYED = "rows.key_by(lambda r: r.k)"
TIMED = "rows.event_time(lambda r: r.t).key_by(lambda r: r.k)"

DEFINITIONS = {
    "a stream ends nowhere": (
        "rows.map(len)",
        "expected at least one source and one sink; found no s",
    ),
    "a sink is a class": ("rows.sink(StdoutSink)", "expected a Sink, such as FileSink(directory)"),
    "a function is called": (
        "rows.map(len([])).sink(StdoutSink())",
        "expected a function; found 0",
    ),
    "a function is async": ("rows.map(wait).sink(StdoutSink())", "found wait"),
    "a method is misspelt": ("rows.filtr(len).sink(StdoutSink())", "a Stream has no 'filtr'"),
    "there is no key": ("rows.count().sink(StdoutSink())", "call key_by first"),
    "there is no event time": (
        f"{KEYED}.window(Tumbling('1m')).count().sink(StdoutSink())",
        "call .event_time(...) there",
    ),
    "a window is not reduced": (
        f"{TIMED}.window(Tumbling('1m')).sink(StdoutSink())",
        "reduce the windows first, as by .count()",
    ),
    "a length is nonsense": (
        f"{TIMED}.window(Tumbling('5 apples')).count().sink(StdoutSink())",
        "program.py:",
    ),
    "a window is a class": (
        f"{TIMED}.window(Tumbling).count().sink(StdoutSink())",
        "found the class Tumbling",
    ),
    "a window is a function": (
        f"{TIMED}.window(lambda row: 5).count().sink(StdoutSink())",
        "found a lambda, at",
    ),
    "a window is a method": (
        f"{TIMED}.window(rows.filter).count().sink(StdoutSink())",
        "found the function filter",
    ),
    "arguments are swapped": (
        f"{KEYED}.enrich(lambda row, table: row, {KEYED}).sink(StdoutSink())",
        "found an object of KeyedStream",
    ),
    "an input is a number": ("job.source(IterableSource(5)).sink(StdoutSink())", "found int"),
    "streams are of two jobs": ("rows.union(Job('o').source(IterableSource([])))", "of job 'o'"),
    "no output is given": ("rows.sink(FileSink(arguments.output))", "`--output PATH`"),
}

RECORDS = {
    "a field is missing": (
        "rows.map(lambda r: r.m)",
        "the row has no field 'm', only ('k', 'n', 't')",
    ),
    "a row is changed": ("rows.map(lambda r: setattr(r, 'n', 5))", "row.replace(n=...)"),
    "one value of many": (
        "rows.flat_map(lambda r: r)",
        "returned one value of type Row, not records",
    ),
    "a number of many": ("rows.flat_map(lambda r: 5)", "returned one value of type int"),
    "a key is a list": ("rows.key_by(lambda r: [r.k]).count()", "found a key of type list"),
    "a time is a date": (
        "rows.event_time(lambda r: datetime(2026, 1, 1))",
        "return int(time.timestamp() * 1000)",
    ),
    "a time is a text": ("rows.event_time(lambda r: '2026-01-01')", "datetime.fromisoformat(text)"),
}

PROCESSORS = {
    "a schema has no type": ("n", "return iter(())", 2, "expected a name and its type"),
    "a type is unknown": ("n lng", "return iter(())", 2, "a known type, not 'lng'"),
    "a state is made late": ("n long", "self.init(self.handle)", 2, "to be created within init"),
    "no timers are wanted": ("n long", "self.handle.registerTimer(5)", 2, "pass time_mode="),
    "a value is no tuple": ("n long", "self.state.update(5)", 1, "int where a tuple is expected"),
    "a value has another type": ("n long", "self.state.update(('x',))", 1, "found ('x',)"),
    "a row is returned": ("n long", "return Row(a=1)", 1, "returned one value of type Row"),
}

LINES = {
    "an array": ('[{"k": 1}]', "as `jq -c '.[]'` does"),
    "an object in lines": ('{\n "k": 1\n}', "as `jq -c .` does"),
    "a number": ("5", "found JSON of type int"),
    "no JSON": ('{"k": oops}', "JSON is malformed"),
}

COMMANDS = {
    "a command is misspelt": (["rn"], 2, "Did you mean 'run'?"),
    "an option is misspelt": (["run", "wordcount", "--paralelism", "2"], 2, "'--parallelism'"),
    "a file has no function": (["run", "job.py", "--store", "st"], 2, "as in job.py:job"),
    "a file is not there": (["run", "none.py:job", "--store", "st"], 2, "no module 'none'"),
    "a store is on the web": (["inspect", "http://x/y"], 2, "found an address of the web"),
    "a scheme is unknown": (["inspect", "s4://x/y"], 2, "Protocol not known: s4"),
    "a slash is missing": (["inspect", "s3:/x/y"], 2, "write s3://..."),
    "a store is empty": (["inspect", "nothing"], 1, "expected the checkpoints of a job"),
    "nothing is verified": (["verify", "nothing"], 1, "found neither"),
    "no job runs": (["stop", "nothing"], 1, "expected a job that runs on this machine"),
    "an option is unknown": (["config", "explain", "paralelism"], 2, "write parallelism"),
}


def fails(code: int, says: str, *command: str | Path) -> None:
    ended = tidelog(*command)
    assert ended.exit_code == code, ended.output
    assert says in ended.stderr
    assert "Traceback" not in ended.output
    assert " at 0x" not in ended.stderr


def run(here: Path, body: str, code: int, says: str, *, more: str = "", lines: str = "") -> None:
    """Run a program whose job is `body`, in a module of its own."""
    program = here / f"{here.name}_program.py"
    program.write_text(
        "from datetime import datetime\nfrom tidelog import *\n"
        f"async def wait(row): return row\n{more}\n"
        "def job(arguments):\n    job = Job('job')\n"
        f"    rows = job.source(JsonLinesSource(arguments.input))\n    {body}\n    return job\n"
    )
    (here / "rows.jsonl").write_text(lines or "\n".join(map(json.dumps, ROWS)))
    options = ("--input", here / "rows.jsonl", "--store", here / "store")
    fails(code, says, "run", f"{program}:job", *options)


@pytest.mark.parametrize("mistake", DEFINITIONS)
def test_a_mistake_of_the_definition_is_named(mistake: str, tmp_path: Path) -> None:
    body, says = DEFINITIONS[mistake]
    run(tmp_path, body, 2, says)


@pytest.mark.parametrize("mistake", RECORDS)
def test_what_a_function_does_with_a_record_is_named(mistake: str, tmp_path: Path) -> None:
    body, says = RECORDS[mistake]
    run(tmp_path, f"{body}.sink(StdoutSink())", 1, says)


@pytest.mark.parametrize("mistake", PROCESSORS)
def test_a_mistake_in_a_processor_is_named(mistake: str, tmp_path: Path) -> None:
    schema, handler, code, says = PROCESSORS[mistake]
    more = PROCESSOR.format(schema=schema, handler=handler)
    run(tmp_path, f"{KEYED}.transform_with_state(P).sink(StdoutSink())", code, says, more=more)


@pytest.mark.parametrize("mistake", LINES)
def test_a_line_that_is_no_record_is_named(mistake: str, tmp_path: Path) -> None:
    lines, says = LINES[mistake]
    run(tmp_path, "rows.sink(StdoutSink())", 1, says, lines=f"{lines}\n")


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_mistake_on_the_command_line_is_named(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, code, says = COMMANDS[mistake]
    fails(code, says, *command)
