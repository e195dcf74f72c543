"""The systems that are compared: where their Python is, how they are installed, and a run of one in
a process of its own: `python -m tidelog_bench.peers.systems PROGRAM FUNCTION TASK OUTCOME`.

Invariants: a system that is not installed is never an error, but a sentence that says what to do.
Of tidelog's environment a program sees only what `import tidelog` needs, so the peer's own versions
of common packages are what it imports; what it prints is kept for its errors.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import ConfigError, TidelogError
from tidelog_bench.peers.phases import SteadyTask
from tidelog_bench.peers.task import EventTask, ProgramTask, Task

if TYPE_CHECKING:
    from tidelog_bench.experiment import Reading, Trial


@dataclass(frozen=True, slots=True)
class System:
    """One variant of the word count."""

    name: str
    title: str
    module: str
    """What the Python of the system must be able to import."""
    program: str
    """The module of `tidelog_bench.peers.programs` for this system."""
    environment: str
    """Names the Python: that in `.tools/peer-ENVIRONMENT`, or TIDELOG_PEER_ENVIRONMENT's value."""
    extra: str | None = None
    """The optional extra of tidelog that installs it with tidelog."""
    java: str | None = None
    """The program of Java that it needs: `java`, or `javac` to compile a program."""

    @property
    def variable(self) -> str:
        """The environment variable that names a Python with the system."""
        return f"TIDELOG_PEER_{self.environment.upper()}"


TIDELOG: Final = System("tidelog", "tidelog", "tidelog", "tidelog_jobs", "tidelog")
SYSTEMS: Final[dict[str, System]] = {
    system.name: system
    for system in (
        TIDELOG,
        System("tidelog-files", "tidelog", "tidelog", "tidelog_jobs", "tidelog"),
        System("tidelog-workers", "tidelog", "tidelog", "tidelog_jobs", "tidelog"),
        System("bytewax", "Bytewax", "bytewax", "bytewax_jobs", "bytewax", "peers"),
        System("quix-store", "Quix Streams", "quixstreams", "quix_count", "quix", "peers"),
        System("pyflink", "PyFlink", "pyflink", "flink_sql", "pyflink", java="java"),
        System("flink-stream", "Flink", "pyflink", "flink_stream", "pyflink", java="javac"),
        System("spark-rocksdb", "PySpark", "pyspark", "spark_count", "spark", "spark", java="java"),
    )
}


def missing(variant: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """Why a system cannot run here, and what to install; None when it can."""
    system = SYSTEMS[variant]
    named = variables.get(system.variable)
    if interpreter(variant, variables) is None:
        if named:
            return f"{system.variable} is {named}, which is no Python with `{system.module}`"
        return f"{system.title} is not installed: {_ways(system)}"
    if system.java and java_tool(system.java, variables) is None:
        kit = "Java" if system.java == "java" else "the JDK of Java"
        return f"{system.title} needs {system.java}: install {kit} 17 or newer, or set JAVA_HOME"
    return None


def java_tool(name: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """The path of `java` or `javac`: of $JAVA_HOME, else on the PATH; None when there is none."""
    home, path = variables.get("JAVA_HOME"), variables.get("PATH")
    return shutil.which(name, path=f"{home}/bin{os.pathsep}{path}" if home else path)


def interpreter(variant: str, variables: Mapping[str, str] = os.environ) -> str | None:
    """The Python to run a system with: the one named, else this one, or that of `just peers`."""
    system = SYSTEMS[variant]
    # The checkout that tidelog lies in, and the working directory.
    roots = (Path(__file__).resolve().parents[3], Path.cwd())
    peers = [f"{root}/.tools/peer-{system.environment}/bin/python" for root in roots]
    named = variables.get(system.variable)
    pythons = [named] if named else [sys.executable, *peers]
    return next((python for python in pythons if _has(python, system.module)), None)


@cache
def _has(python: str, module: str) -> bool:
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    try:
        found = subprocess.run([python, "-c", look], capture_output=True, check=False)
    except OSError:
        return False
    return found.returncode == 0


def _ways(system: System) -> str:
    ways = [f"set {system.variable} to a Python that has it"]
    if system.extra is not None:
        ways.insert(0, f"run `pip install 'tidelog[{system.extra}]'`")
    if system.extra != "spark":
        ways.insert(0, "run `just peers` in a checkout")
    return ", or ".join(ways)


_TASKS: Final[dict[str, type[ProgramTask]]] = {
    "run": Task,
    "run_events": EventTask,
    "run_steady": SteadyTask,
}
"""What each function of a program takes."""
_NEEDED: Final = ("tidelog", "tidelog_bench", "lazy_loader")
_TIMEOUT_S: Final = 3600
_SHOWN: Final = 3000
"""Characters of what a failed program printed last."""


def run_program(trial: "Trial", function: str, **more: Any) -> "Reading":
    """Call a function of the program for a trial's variant, with the Python that has the system.

    Raises ConfigError when there is none, and TidelogError with what it printed when it fails.
    """
    python = interpreter(trial.variant)
    if python is None:
        raise ConfigError(
            f"peer {trial.variant}",
            expected="a Python that can import it",
            found="none",
            action=missing(trial.variant) or "install it",
        )
    directory = trial.directory.resolve()
    task = trial.read(_TASKS[function], variant=trial.variant, directory=str(directory), **more)
    packages = directory / "packages"
    packages.mkdir()
    for name in _NEEDED:
        (packages / name).symlink_to(Path(import_module(name).__file__ or "").resolve().parent)
    asked, answer, log = directory / "task.json", directory / "outcome.json", directory / "log"
    asked.write_text(json.dumps(asdict(task)))
    program = SYSTEMS[trial.variant].program
    command = [python, "-m", __name__, program, function, str(asked), str(answer)]
    environment = os.environ | {"PYTHONPATH": str(packages)}
    with log.open("wb") as output:
        ended = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if ended.returncode:
        raise TidelogError(
            f"the program {program}",
            expected="a run that ends with its figures",
            found=f"exit code {ended.returncode}: {log.read_text(errors='replace')[-_SHOWN:]}",
            action="see what it printed; is the installed version of the peer supported?",
        )
    # Programs of other systems read this module where msgspec cannot be imported.
    from tidelog_bench.experiment import Reading  # noqa: PLC0415

    return Reading(**json.loads(answer.read_text()))


def main(program: str, function: str, asked: str, answer: str) -> None:
    """In the program's process."""
    module = import_module(f"tidelog_bench.peers.programs.{program}")
    task = _TASKS[function](**json.loads(Path(asked).read_text()))
    found: dict[str, Any] = {"figures": getattr(module, function)(task)}
    if package := getattr(module, "PACKAGE", None):
        found["notes"] = {"versions": {package.removeprefix("apache-"): version(package)}}
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
