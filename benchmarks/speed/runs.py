"""Jobs as processes of their own, each with the source of one revision and this environment.

Invariant: a run starts from nothing, or from a store that its own revision has written.
"""

import hashlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.speed.workloads import HERE, TABLE, Workload
from tidelog.errors import ConfigError, TidelogError

ROOT: Final = HERE.parents[1]
_LAST_LINES: Final = 15
"""How much of what a failed run printed is shown."""


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds: processor time of the whole process, start included; the median checkpoint."""

    cpu_s: float
    checkpoint_p50_s: float


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A directory that `make` fills once; it appears whole, so that sessions can share it."""
    # Inputs are drawn anew when the code that draws them has changed.
    code = hashlib.sha256((HERE / "workloads.py").read_bytes()).hexdigest()[:12]
    directory = Path(tempfile.gettempdir()) / "tidelog-speed" / code / name
    if directory.exists():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        make(made)
        try:
            made.rename(directory)
        except OSError:
            # Another session may have made it meanwhile.
            if not directory.exists():
                raise
    return directory


def commit_of(revision: str) -> str:
    """The full name of a revision of this clone; raises ConfigError when it is not there."""
    found = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found.returncode:
        shallow = _git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        raise ConfigError(
            f"base revision {revision}",
            expected=f"a commit in the clone {ROOT}",
            found="a shallow clone without it" if shallow else "none",
            action="run `git fetch --unshallow`"
            if shallow
            else "run `git fetch`, or pass --base with a revision that `git log` shows",
        )
    return found.stdout.decode().strip()


def source_of(commit: str) -> Path:
    """The directory `src` as it was in a commit."""

    def extract(to: Path) -> None:
        archive = _git("archive", commit, "src")
        if archive.returncode:
            raise ConfigError(
                f"base revision {commit}",
                expected="a directory src in it",
                found=archive.stderr.decode().strip(),
                action="pass --base with a revision of tidelog, and see that the clone is whole",
            )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(to, filter="data")

    return cached(f"source-{commit}", extract) / "src"


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


def run(source: Path, workload: Workload, inputs: Path, store: Path | None) -> Run:
    """Run a job to its end, from a copy of `store` if given."""
    with tempfile.TemporaryDirectory(prefix="tidelog-speed-") as work:
        if store is not None:
            shutil.copytree(store, Path(work) / "store")
        command, environment = _command(source, workload, inputs, Path(work), workload.parallelism)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*command, "--checkpoint-interval", "1s", "--materialize-interval", "5s"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise failed(workload.job, source, done.returncode, done.stdout, done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(cpu_s, result["checkpoints"]["p50_s"] or 0.0)


def prepare(source: Path, workload: Workload, inputs: Path, store: Path) -> None:
    """Leave a store with every row in it: half of them in tables, half in the log."""
    whole = sum(1 for path in inputs.iterdir() for _ in path.open())
    tables = sum(1 for path in inputs.glob(TABLE) for _ in path.open())
    _follow(source, workload, inputs, store, tables, ["--include", TABLE, "--no-changelog"])
    never = ["--materialize-interval", "1h", "--replay-target", "1h"]
    _follow(source, workload, inputs, store, whole - tables, never)


_IDLE_REPORTS: Final = 25
"""Five seconds of reports after the last record: ten intervals of checkpoints."""


def _follow(
    source: Path,
    workload: Workload,
    inputs: Path,
    store: Path,
    records: int,
    options: Sequence[str],
) -> None:
    """Run until so many records are read and in a checkpoint, then stop as Ctrl-C does."""
    parallelism = workload.restored_from or 1
    command, environment = _command(source, workload, inputs, store.parent, parallelism)
    command += ["--follow", "--report-interval", "200ms", "--checkpoint-interval", "500ms"]
    command += options
    complete, line, idle = None, "", 0
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            report: dict[str, Any] = json.loads(line)
            if report["event"] != "progress" or report["records_read"] < records:
                continue
            completed, idle = report["checkpoints"]["completed"], idle + 1
            # One may have begun before the last record; the one after it has them all.
            complete = completed + 2 if complete is None else complete
            # A job that is idle takes no further one.
            if completed >= complete or idle == _IDLE_REPORTS:
                process.send_signal(signal.SIGINT)
                complete = sys.maxsize
        if process.wait() != 130:
            errors.seek(0)
            raise failed(workload.job, source, process.returncode, line, errors.read())


def _command(
    source: Path, workload: Workload, inputs: Path, work: Path, parallelism: int
) -> tuple[list[str], dict[str, str]]:
    command, environment = command_of(source, HERE, workload.job, work / "store")
    command += ["--input", str(inputs), "--parallelism", str(parallelism)]
    return [*command, "--output", str(work / "output")], environment


def command_of(source: Path, jobs: Path, job: str, store: Path) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that run a job of the directory `jobs` with a source."""
    command = [sys.executable, "-m", "tidelog", "run", job, "--json", "--store", str(store)]
    path = os.pathsep.join((str(source), str(jobs)))
    return command, os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"}


def failed(job: str, source: Path, code: int, output: str, errors: str) -> TidelogError:
    """What is to be said of a run that ended with this code and these last lines."""
    shown = (errors.strip() or output.strip()).splitlines()[-_LAST_LINES:]
    return TidelogError(
        f"{job} with {source}",
        expected="a run that ends as it should",
        found="\n".join((f"exit code {code}:", *shown)),
        action="repair that source, or compare with a --base that runs",
    )
