"""`tidelog bench`: sessions run, are recorded, and go on after an interruption."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.support import bench_toy
from tests.support.cli import tidelog
from tidelog_bench import experiments as registry
from tidelog_bench.experiment import Cell
from tidelog_bench.session import session
from tidelog_bench.session.children import ChildError
from tidelog_bench.session.plan import steps
from tidelog_bench.session.records import TrialRecord, read, trials

ROOT = Path(__file__).parents[3]


class Inside:
    """Makes the calls of a trial in this process, which is done at once."""

    def __init__(self, **_: object) -> None:
        self._answer: object = None

    def __enter__(self) -> "Inside":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self._answer = function(*arguments)
        except ValueError as error:
            self._answer = ChildError(str(error))

    def wait(self, seconds: float) -> bool:
        return True

    def result(self) -> object:
        if isinstance(self._answer, ChildError):
            raise self._answer
        return self._answer


@pytest.fixture(autouse=True)
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials take no process of their own."""
    monkeypatch.setattr(session, "Child", Inside)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registry holds the toys alone."""
    found = {experiment.name: experiment for experiment in bench_toy.EXPERIMENTS}
    monkeypatch.setattr(registry, "experiments", lambda: found)
    for module in ("cli.run", "report.answer"):
        monkeypatch.setattr(f"tidelog_bench.{module}.experiments", lambda: found)
    yield


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file exists, trials of the variant that it names fail."""
    monkeypatch.setenv(bench_toy.FLAG, str(tmp_path / "broken"))
    return tmp_path / "broken"


def bench(tmp_path: Path, *arguments: str) -> Result:
    return tidelog("bench", *arguments, "--results", tmp_path / "results")


def only_session(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "results").glob("*.jsonl")
    return path


def order(path: Path) -> list[tuple[object, str, int]]:
    return [
        (record.settings["size"], record.variant, record.pair)
        for record in read(path)
        if isinstance(record, TrialRecord)
    ]


def test_the_variants_of_a_pair_alternate_and_every_other_pair_is_reversed(tmp_path: Path) -> None:
    result = bench(tmp_path, "run", "toy-value", "--quick", "--pairs", "3")
    assert result.exit_code == 0, result.output
    assert order(only_session(tmp_path)) == [
        (1, "on", 0),
        (1, "off", 0),
        (1, "off", 1),
        (1, "on", 1),
        (1, "on", 2),
        (1, "off", 2),
    ]


def test_a_cell_that_counts_has_one_pair() -> None:
    cell = Cell({"size": 1, "counted": True}, ("on", "off"), 0.1)
    planned = [(step.variant, step.pair) for step in steps(bench_toy.EXPERIMENTS[0], [cell], [], 5)]
    assert planned == [("on", 0), ("off", 0)]


def test_results_that_cannot_be_written_are_named_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = tidelog("bench", "run", "toy-value", "--quick", "--results", tmp_path / "file" / "x")
    assert result.exit_code == 2 and "another directory with --results" in result.stderr


def test_the_trials_of_a_cell_and_variant_share_a_directory(tmp_path: Path, broken: Path) -> None:
    broken.write_text("on")
    bench(tmp_path, "run", "toy-value", "--pairs", "3")
    found = trials(read(only_session(tmp_path)))
    assert [trial.notes["earlier"] for trial in found] == [0, 1, 2] * 2


def test_a_resumed_session_repeats_whole_pairs_and_nothing_that_is_done(
    tmp_path: Path, broken: Path
) -> None:
    broken.write_text("on")
    bench(tmp_path, "run", "toy-value", "--quick", "--pairs", "2")
    path = only_session(tmp_path)
    assert order(path) == [(1, "off", 0), (1, "off", 1)]
    broken.unlink()
    result = bench(tmp_path, "run", "--resume", path.stem)
    assert result.exit_code == 0, result.output
    assert order(path)[2:] == [(1, "on", 0), (1, "off", 0), (1, "off", 1), (1, "on", 1)]
    # Of two trials of one pair and variant the last one counts.
    assert len(trials(read(path))) == 4
    result = bench(tmp_path, "run", "--resume", "latest")
    assert result.exit_code == 0, result.output
    assert len(order(path)) == 6


def test_stale_runs_only_what_no_session_has_measured_with_this_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        result = bench(tmp_path, "run", "toy-value", "--quick", "--stale")
        assert result.exit_code == 0, result.output
    assert "Nothing to run" in result.stderr
    path = only_session(tmp_path)
    for module in ("plan", "sources"):
        monkeypatch.setattr(f"tidelog_bench.session.{module}.digest", lambda _: "other")
    (row,) = json.loads(bench(tmp_path, "sessions", "--json").stdout)
    assert row["stale"] == ["toy-value"]
    assert "code of toy-value" in bench(tmp_path, "run", "--resume", path.stem).stderr
    assert bench(tmp_path, "run", "toy-value", "--quick", "--stale").exit_code == 0
    assert len(list((tmp_path / "results").glob("*.jsonl"))) == 2


def test_a_killed_session_takes_its_trial_with_it_and_goes_on(tmp_path: Path) -> None:
    flag = tmp_path / "broken"
    flag.write_text("wait")
    script = tmp_path / "bench.py"
    script.write_text(
        "from tests.support import bench_toy\n"
        "from tidelog_bench import experiments as registry\n"
        "found = {e.name: e for e in bench_toy.EXPERIMENTS}\n"
        "if __name__ == '__main__':\n"
        "    registry.experiments = lambda: found\n"
        "    from tidelog.cli import main\n"
        "    main()\n"
    )
    environment = os.environ | {
        bench_toy.FLAG: str(flag),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src", ROOT / "benchmarks"))),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, script, "bench", "run", "toy-value", "--quick"]
    process = subprocess.Popen(
        [*command, "--results", tmp_path / "results"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    announced = process.stderr.readline()
    assert "2 trials" in announced
    child = _trial_of(process.pid)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in errors
    assert not Path(f"/proc/{child}").exists()
    flag.unlink()
    result = bench(tmp_path, "run", "--resume", "latest")
    assert result.exit_code == 0, result.output
    assert order(only_session(tmp_path)) == [(1, "on", 0), (1, "off", 0)]


def _trial_of(parent: int) -> int:
    """Wait for the process of a trial; the other child is multiprocessing's resource tracker."""
    while True:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)


FREE = {"settings", "figures", "notes", "machine", "versions", "ratios", "sources"}
"""Their keys are names that experiments choose."""


def keys(document: object) -> Iterator[str]:
    if isinstance(document, list):
        for item in document:
            yield from keys(item)
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in FREE:
                yield from keys(value)


def test_every_field_of_the_json_output_is_documented(tmp_path: Path, broken: Path) -> None:
    broken.write_text("off")
    ran = bench(tmp_path, "run", "toy-value", "toy-absent", "--quick", "--json").stdout
    broken.unlink()
    printed = [
        *ran.splitlines(),
        tidelog("bench", "list", "--json").stdout,
        bench(tmp_path, "sessions", "--json").stdout,
    ]
    found = {key for document in printed for key in keys(json.loads(document))}
    document = (ROOT / "docs" / "reference" / "cli-json.md").read_text()
    section = document[document.index("## tidelog bench list") :]
    assert {key for key in found - {"kind"} if f"`{key}`" not in section} == set()
