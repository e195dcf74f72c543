"""Mistakes of a job's code are told with the file, the line and what was meant."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.cli import tidelog

HEAD = """from tidelog import *
def job():
    job = Job("mistakes")
    rows = job.source(IterableSource([Row(n=1), Row(n=2)]))
"""


def written(directory: Path, case: str, text: str) -> Path:
    """A file of its own for each case: a process imports a module once."""
    file = directory / f"{re.sub(r'[^a-z]', '_', case)}.py"
    file.write_text(text)
    return file


DEFINITIONS = {
    "no keys": ("rows.window(5)", "a Stream has no 'window': call key_by"),
    "no keys any more": (
        "rows.key_by(lambda r: r.n).event_time(lambda r: r.n).count()",
        "a Stream has no 'count': call key_by",
    ),
    "a method that is not there": ("rows.key_by(lambda r: r.n).windw(5)", "KeyedStream has no 'w"),
    "an argument left out": (
        "rows.key_by(lambda r: r.n).sum()",
        "missing 1 required .* 'value_of'",
    ),
    "a name for a function": ("rows.key_by(lambda r: r.n).sum('n')", "of sum; expected a function"),
    "a generator": ("rows.map(lambda r: (yield r))", "of map; expected .*without `yield`"),
    "a generator as a filter": ("rows.filter(lambda r: (yield r))", "of filter; .*without `yield`"),
    "a processor without a handler": (
        "rows.key_by(id).transform_with_state(type('P', (StatefulProcessor,), {'init': print}))",
        "expected methods handleInputRows; found none in P",
    ),
    "a handler of another name": (
        "type('P', (StatefulProcessor,), {'handleExpiredTimers': print})",
        "processor P; expected handleExpiredTimer; found handleExpiredTimers",
    ),
    "a name that is not there": ("rows.map(absent)", "NameError: name 'absent'"),
}


@pytest.mark.parametrize("case", DEFINITIONS)
def test_a_mistake_in_a_definition_is_told_with_its_line(case: str, tmp_path: Path) -> None:
    line, message = DEFINITIONS[case]
    file = written(tmp_path, case, f"{HEAD}    {line}\n    return job\n")
    result = tidelog("run", f"{file}:job", "--store", tmp_path / "store")
    assert result.exit_code == 2
    assert re.search(message, result.stderr)
    assert f"{file.name}:5 ({line})" in result.stderr
    assert "retry" not in result.stderr and "checkpoint" not in result.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("package", "name", "meant"),
    [("tidelog", "ValueStat", "ValueState"), ("tidelog.spark", "configur", "configure")],
)
def test_a_misspelt_name_is_answered_with_the_next_one(package: str, name: str, meant: str) -> None:
    message = re.escape(f"{package} has no '{name}'. Did you mean '{meant}'?")
    with pytest.raises(AttributeError, match=message):
        getattr(import_module(package), name)
    with pytest.raises(ImportError, match=message):
        exec(f"from {package} import {name}")
    with pytest.raises(ImportError, match="cannot import name 'nothing_like_it'"):
        exec(f"from {package} import nothing_like_it")
    assert not hasattr(import_module(package), name)


def test_a_job_that_is_not_returned_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text(f"{HEAD}    rows.sink(StdoutSink())\n")
    result = tidelog("run", f"{tmp_path}/silent.py:job", "--store", tmp_path / "store")
    assert result.exit_code == 2 and "its function has no `return`" in result.stderr


def test_a_job_of_another_name_is_told_with_the_names_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(f"{HEAD}    return job\nCOUNT = 1\n")
    result = tidelog("run", f"{tmp_path}/named.py:jobs", "--store", tmp_path / "store")
    assert result.exit_code == 2 and "found only job in it" in result.stderr


FUNCTIONS = {
    "map": "rows.map(lambda r: 1 / (r.n - 2))",
    "filter": "rows.filter(lambda r: 1 / (r.n - 2))",
    "flat-map": "rows.flat_map(lambda r: [1 / (r.n - 2)])",
    "key_by before operator 'count'": "rows.key_by(lambda r: 1 / (r.n - 2)).count()",
    "sum": "rows.key_by(lambda r: 1).sum(lambda r: 1 / (r.n - 2))",
    "event-time": "rows.event_time(lambda r: 1 / (r.n - 2))",
}


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_a_function_that_fails_is_told_with_its_line_and_the_record(
    operator: str, tmp_path: Path
) -> None:
    line = FUNCTIONS[operator]
    text = f"{HEAD}    out = (\n        {line}\n    )\n    out.sink(ForeachSink(print))\n"
    file = written(tmp_path, f"failing {operator}", f"{text}    return job\n")
    result = tidelog("run", f"{file}:job", "--store", tmp_path / "store")
    assert result.exit_code == 1
    error = result.stderr[result.stderr.index("Error: ") :]
    assert error.startswith(f"Error: {operator} raised ZeroDivisionError: division by zero, at ")
    assert f"{file.name}:6 ({line}), with r=Row(n=2). Next: fix the function" in error
