"""`tidelog run` as a process: results, exit codes, reports, fencing, resuming; what the system
refuses is said with what to do."""

import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path

import pytest

from tests.process import harness
from tests.process.harness import Run, killed_at_last, started, wait_until
from tests.support.depth import more_in_depth


def write_lines(run: Run, lines: int = 200, *, last: str = "the end") -> list[str]:
    """Distinct lines in one file."""
    texts = [f"line {number} of {lines}" for number in range(lines)] + [last]
    (run.input / "lines.txt").write_text("".join(f"{text}\n" for text in texts))
    return texts


def test_of_two_processes_on_one_store_the_newer_goes_on_and_the_older_is_fenced(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy")
    lines = write_lines(run)
    with killed_at_last(run.start()) as older:
        wait_until(lambda: run.slots() >= 3, older)
        with killed_at_last(run.start()) as newer:
            fenced = run.end(older)
            run.release()
            finished = run.end(newer)
    assert fenced.returncode == 3
    assert "fenced" in fenced.stderr
    assert "Traceback" not in fenced.stderr
    assert finished.returncode == 0, finished.stderr
    assert sorted(run.lines()) == sorted(lines)


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
    ids=["ctrl-c", "sigterm", "a terminal that is closed"],
)
def test_a_stopped_job_says_where_it_resumes_and_does(
    tmp_path: Path, number: signal.Signals
) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy")
    lines = write_lines(run)
    with killed_at_last(run.start()) as process:
        wait_until(lambda: run.slots() >= 3, process)
        process.send_signal(number)
        stopped = run.end(process)
    assert stopped.returncode == 130
    assert "to resume from checkpoint" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert list((tmp_path / "work").glob("*/*")) == []  # nothing is left on the disk
    run.release()
    run.finish_here()
    assert sorted(run.lines()) == sorted(lines)


def test_a_job_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy")
    lines = write_lines(run)
    ignoring = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)  # what `nohup` does
    environment = {**os.environ, "TIDELOG_TEST_RELEASE": str(run.released)}
    with killed_at_last(started(*run.command, env=environment, preexec_fn=ignoring)) as process:
        wait_until(lambda: run.slots() >= 3, process)
        process.send_signal(signal.SIGHUP)
        run.release()
        assert run.end(process).returncode == 0
    assert sorted(run.lines()) == sorted(lines)


def test_a_second_signal_ends_a_job_that_cannot_stop(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:stuck")
    run.output.mkdir()
    with killed_at_last(run.start()) as process:
        wait_until((run.output / "reading").exists, process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert any("stopping" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(harness.GIVE_UP_S) == -signal.SIGINT


def test_a_second_signal_ends_a_job_whose_function_does_not_return(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:endless")
    run.output.mkdir()
    with killed_at_last(run.start()) as process:
        for seen in ("called", "signalled"):
            wait_until((run.output / seen).exists, process)
            process.send_signal(signal.SIGINT)
        assert process.wait(harness.GIVE_UP_S) == -signal.SIGINT


IN_A_CONTAINER = ("unshare", "--pid", "--fork", "--kill-child")
"""Makes a command the first process of a container, the only child of this one."""


def started_in_a_container(*arguments: str) -> "subprocess.Popen[str]":
    if subprocess.run([*IN_A_CONTAINER, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may make no containers (unshare --pid)")
    return subprocess.Popen(
        [*IN_A_CONTAINER, sys.executable, "-m", "tidelog", *arguments],
        cwd=harness.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def signal_first_process(container: "subprocess.Popen[str]", number: signal.Signals) -> None:
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
    os.kill(int(children), number)


def test_a_second_signal_ends_the_first_process_of_a_container(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:stuck")
    run.output.mkdir()
    with killed_at_last(started_in_a_container(*run.command)) as container:
        wait_until((run.output / "reading").exists, container)
        signal_first_process(container, signal.SIGTERM)
        assert container.stderr is not None
        assert any("stopping" in line for line in container.stderr)
        signal_first_process(container, signal.SIGTERM)
        assert container.wait(harness.GIVE_UP_S) == 128 + signal.SIGTERM


def test_a_page_that_is_the_first_process_of_a_container_ends_by_sigterm(tmp_path: Path) -> None:
    run = Run(tmp_path, "wordcount")
    run.finish_here()
    with killed_at_last(started_in_a_container("ui", str(run.store))) as container:
        assert container.stdout is not None
        assert "127.0.0.1" in container.stdout.readline()
        signal_first_process(container, signal.SIGTERM)
        assert container.wait(harness.GIVE_UP_S) == 128 + signal.SIGTERM


PROGRAM = """
import time

from tidelog import ForeachSink, Job, IterableSource


def slowly(n):
    time.sleep(0.001)
    return n


def job():
    job = Job("counting")
    numbers = job.source(IterableSource(range(20_000))).map(slowly)
    numbers.key_by(lambda n: n % 100).aggregate(lambda n: 1, lambda a, b: a + b).sink(
        ForeachSink(lambda n: None)
    )
    return job
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(PROGRAM)


def command(tmp_path: Path, *options: str, files: int | None = None) -> "subprocess.Popen[str]":
    def limited() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, 24), files))

    environment = os.environ | {"COLUMNS": "500"}
    # Between fork and exec `limited` only makes system calls.
    return started(
        "run", "counting:job", *options, cwd=tmp_path, env=environment, preexec_fn=limited
    )


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@cache
def start_seconds() -> float:
    """What Python needs until the command begins: before that an interrupt is its own business."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import tidelog, signal, typing"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_too_few_open_files_are_told_with_the_limit_and_what_is_needed(tmp_path: Path) -> None:
    process = command(tmp_path, "--store", "store", "--parallelism", "8", files=30)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "open files" in errors and "ulimit -n" in errors and "for each subtask" in errors


@pytest.mark.parametrize("tenths", more_in_depth([1, 3, 6, 10], range(21)))
def test_an_interrupt_ends_a_command_with_130_at_any_moment(tenths: int, tmp_path: Path) -> None:
    process = command(tmp_path, "--store", "store")
    # By its own processor time: on a busy machine Python itself may not have begun by then.
    begun = max(0.06, 1.5 * start_seconds())
    while processor_seconds(process.pid) < begun + tenths / 20:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    # Python may end itself by the signal, where it came within an import: 130 in a shell too.
    assert process.returncode in (130, -signal.SIGINT), errors
    assert "Traceback" not in errors and "Aborted" not in errors


@pytest.mark.parametrize("options", ["--json >&-", "2>&-", "2>/dev/full"])
def test_a_job_runs_with_a_standard_stream_that_is_closed_or_full(
    options: str, tmp_path: Path
) -> None:
    run = Run(tmp_path, "wordcount")
    lines = write_lines(run, 20)
    command = f"exec {shlex.join([sys.executable, '-m', 'tidelog', *run.command])} {options}"
    done = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
    assert {record["word"] for record in run.records()} == set(" ".join(lines).split())


def test_reports_and_tables_that_a_full_disk_refuses_are_an_error_that_says_so(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, "wordcount")
    write_lines(run, 20)
    listing = ["checkpoints", "list", run.store]
    for command in ([*run.command, "--json"], listing, [*listing, "--json"]):
        with Path("/dev/full").open("w") as full:
            done = run.end(started(*command, stdout=full))
        assert done.returncode == 1
        assert "standard output" in done.stderr and "free or add space" in done.stderr
        assert "Traceback" not in done.stderr


def test_reports_that_nobody_reads_any_more_end_the_job_with_an_error(tmp_path: Path) -> None:
    run = Run(tmp_path, "tests.process.jobs:copy")
    write_lines(run)
    with killed_at_last(run.start("--json", "--report-interval", "10ms")) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(harness.GIVE_UP_S) == 1
    assert "a reader of the reports until the job ends" in said and "Traceback" not in said
