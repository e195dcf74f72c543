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
from tidelog_bench.session import session
from tidelog_bench.session.children import Child, ChildError
from tidelog_bench.session.records import (
    CutRecord,
    FailureRecord,
    SessionRecord,
    SkipRecord,
    TrialRecord,
    read,
    trials,
)

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
    """Trials take no process, but where a test asks for `processes`."""
    monkeypatch.setattr(session, "Child", Inside)


@pytest.fixture
def processes(inside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial has a process of its own, as outside of tests."""
    monkeypatch.setattr(session, "Child", Child)


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


def test_each_trial_has_a_process_of_its_own_and_both_of_a_pair_one_seed(
    tmp_path: Path, processes: None
) -> None:
    bench(tmp_path, "run", "toy-value", "--quick", "--pairs", "2", "--seed", "7")
    found = trials(read(only_session(tmp_path)))
    assert len({trial.figures["process"] for trial in found}) == 4
    assert os.getpid() not in {trial.figures["process"] for trial in found}
    assert {(trial.pair, trial.seed) for trial in found} == {(0, 7), (1, 8)}


def test_a_session_begins_with_what_it_ran_on_and_prints_medians_and_ratios(tmp_path: Path) -> None:
    result = bench(tmp_path, "run", "toy-value", "--quick", "--pairs", "2")
    first, *_ = read(only_session(tmp_path))
    assert isinstance(first, SessionRecord)
    assert first.machine["cores"] == os.cpu_count()
    assert {"python", "tidelog"} <= first.versions.keys()
    assert (first.size, first.pairs, first.seed, first.names) == ("quick", 2, 1, ["toy-value"])
    # Seeds 1 and 2: on reads 2 and 4, off reads 4 and 8.
    dash = "\N{EN DASH}"
    assert f"value ms: on 3 (2{dash}4); off 6 (4{dash}8); on / off 0.5x" in result.stdout


def test_a_session_of_few_pairs_says_that_they_tell_little(tmp_path: Path) -> None:
    few = bench(tmp_path, "run", "toy-value", "--pairs", "2", "--only", "size=2")
    assert {size for size, _, _ in order(only_session(tmp_path))} == {2}
    said = "2 pairs: too few to tell a difference from noise; that takes 5"
    assert f"{said}." in few.stderr and said in few.stdout
    enough = bench(tmp_path, "run", "toy-value", "--pairs", "5", "--only", "size=1")
    assert "too few to tell" not in enough.output


def test_a_session_with_a_limit_cuts_what_does_not_fit_and_resume_runs_it(
    tmp_path: Path, broken: Path, processes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken.write_text("wait")
    monkeypatch.setattr("tidelog_bench.session.plan.QUICK_S", 1.0)
    result = bench(tmp_path, "run", "toy-value", "toy-absent", "--quick", "--pairs", "2")
    assert result.exit_code == 0, result.output
    path = only_session(tmp_path)
    cut = [record for record in read(path) if isinstance(record, CutRecord)]
    assert [(record.experiment, record.pair) for record in cut] == [
        ("toy-value", 0),
        ("toy-value", 1),
        ("toy-absent", 0),
        ("toy-absent", 1),
    ]
    assert "on was given up after" in cut[0].reason and "were left for" in cut[1].reason
    assert "4 pairs were cut for want of time" in result.stdout
    broken.unlink()
    monkeypatch.setattr(session, "Child", Inside)
    monkeypatch.setattr("tidelog_bench.session.plan.QUICK_S", 600.0)
    result = bench(tmp_path, "run", "--resume", path.stem)
    assert result.exit_code == 0, result.output
    assert "cut" not in result.stdout
    assert len(trials(read(path))) == 6


def test_trials_that_share_a_jvm_share_a_process_in_a_quick_session_alone(
    tmp_path: Path, broken: Path, processes: None
) -> None:
    result = bench(tmp_path, "run", "toy-jvm", "--quick", "--pairs", "2")
    assert result.exit_code == 0, result.output
    path = only_session(tmp_path)
    assert len({trial.figures["process"] for trial in trials(read(path))}) == 1
    path.unlink()
    # What failed may have left anything: the next trial begins with a new process.
    broken.write_text("off")
    bench(tmp_path, "run", "toy-jvm", "--quick", "--pairs", "2")
    path = only_session(tmp_path)
    assert len({trial.figures["process"] for trial in trials(read(path))}) == 2
    path.unlink()
    broken.unlink()
    bench(tmp_path, "run", "toy-jvm", "--pairs", "1", "--only", "size=1")
    found = trials(read(only_session(tmp_path)))
    assert len({trial.figures["process"] for trial in found}) == len(found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["toy-value", "--quick", "--only", "size=9"], "size=9"),
        (["toy-value", "--only", "size"], "KEY=VALUE"),
        (["toy-vlaue"], "bench list"),
        (["toy-value", "--quick", "--full"], "exclude each other"),
        ([], "names of experiments or groups"),
        (["toy-value", "--resume", "latest"], "everything is taken from the session"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    result = bench(tmp_path, "run", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "results").exists()


def test_a_failed_trial_is_recorded_with_its_output_and_the_others_go_on(
    tmp_path: Path, broken: Path, processes: None
) -> None:
    broken.write_text("off")
    result = bench(tmp_path, "run", "toy-value", "--quick")
    assert result.exit_code == 1
    records = list(read(only_session(tmp_path)))
    (failure,) = (record for record in records if isinstance(record, FailureRecord))
    assert failure.variant == "off"
    assert "last words of the trial" in failure.error
    assert "ValueError: the toy is broken" in failure.error
    assert order(only_session(tmp_path)) == [(1, "on", 0)]


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


def test_a_session_does_not_go_on_with_another_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench(tmp_path, "run", "toy-value", "--quick")
    monkeypatch.setattr(
        "tidelog_bench.session.environment.source_digest", lambda: "0123456789abcdef"
    )
    result = bench(tmp_path, "run", "--resume", "latest")
    assert result.exit_code == 2
    assert "source of the library" in result.stderr and "begin a new session" in result.stderr


def test_what_cannot_run_here_is_skipped_with_its_reason(tmp_path: Path) -> None:
    result = bench(tmp_path, "run", "toy-absent", "--quick")
    assert result.exit_code == 0, result.output
    assert "toy-absent absent: skipped, not on a Sunday" in result.stdout
    skipped = [r for r in read(only_session(tmp_path)) if isinstance(r, SkipRecord)]
    assert skipped == [
        SkipRecord(experiment="toy-absent", variant="absent", reason="not on a Sunday")
    ]
    assert order(only_session(tmp_path)) == [(1, "on", 0)]


def test_a_line_cut_off_by_a_crash_is_no_record(tmp_path: Path) -> None:
    result = bench(tmp_path, "run", "toy-value", "--quick", "--json")
    path = only_session(tmp_path)
    # What is printed with --json are the records themselves.
    printed, written = (text.splitlines() for text in (result.stdout, path.read_text()))
    assert list(map(json.loads, printed)) == list(map(json.loads, written))
    whole = list(read(path))
    path.write_bytes(path.read_bytes() + b'{"kind":"trial","meas')
    assert list(read(path)) == whole
    bench(tmp_path, "run", "--resume", path.stem)
    assert len(trials(read(path))) == 2


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


def test_list_says_what_is_compared_and_what_is_missing(tmp_path: Path) -> None:
    result = tidelog("bench", "list", "--json")
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["toy-value"]["cells"] == [{"size": 1, "job": "toy"}, {"size": 2, "job": "toy"}]
    assert rows["toy-value"]["trials"] == 20
    # A tenth of a second and what a process takes, for each of 20 trials and of 2.
    assert (rows["toy-value"]["standard_s"], rows["toy-value"]["quick_s"]) == (12, 1)
    assert rows["toy-absent"]["missing"] == [{"variant": "absent", "reason": "not on a Sunday"}]
    listed = tidelog("bench", "list").stdout
    assert "absent will be skipped: not on a Sunday" in listed
    assert "All together: standard 0:27, quick 0:03; a quick session ends after 9:30" in listed


def test_sessions_are_listed_and_an_ambiguous_name_is_refused(tmp_path: Path) -> None:
    bench(tmp_path, "run", "toy-value", "--quick")
    path = only_session(tmp_path)
    path.with_name(path.stem + "-again.jsonl").write_text(path.read_text())
    rows = json.loads(bench(tmp_path, "sessions", "--json").stdout)
    assert [row["trials"] for row in rows] == [2, 2]
    result = bench(tmp_path, "report", path.stem[:-1], "--terminal")
    assert result.exit_code == 2 and "2 of 2 sessions" in result.stderr
    # A whole name is meant, though another one begins with it.
    assert bench(tmp_path, "report", path.stem, "--terminal").exit_code == 0


FREE = {"settings", "figures", "series", "notes", "machine", "versions", "ratios"}
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
