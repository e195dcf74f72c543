"""What a command does not use it does not import: every start compiles and runs what it imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documentation import ROOT

_LISTED = """
import sys
sys.argv = ["tidelog", *sys.argv[1:]]
from tidelog.cli import main
try:
    main()
finally:
    print("imported", *sys.modules, file=sys.stderr)
"""


def names(text: str, package: str = "") -> set[str]:
    """The names in a text, all of one package."""
    return {f"{package}{name}" for name in text.split()}


RUNTIME = names(
    "runtime.runner runtime.graph runtime.status.status checkpoint.coordinator checkpoint.manifest "
    "state.backend storage.port table.rocksdb effects",
    "tidelog.",
)
LIBRARIES = names("asyncio fsspec msgspec rich rocksdict ssl tomllib zstandard")
# What restores and canonical savepoints need; a job that begins restores nothing.
RESTORING = names(
    "runtime.restore.fit runtime.restore.migrate runtime.restore.drop runtime.restore.assign "
    "state.recovery.restorer catalog.locate checkpoint.local_first",
    "tidelog.",
)
# Data in flight, metrics, questions of other processes, operators and connectors that the job does
# not have, and what other commands need.
OTHERS = names(
    "runtime.in_flight.codec runtime.in_flight.redistribution "
    "runtime.status.series runtime.control.client "
    "runtime.operators.process runtime.operators.window runtime.tasks.caller_task "
    "state.handles.keyed connectors.files.parquet cli.run.live "
    "cli.store.options ui verify",
    "tidelog.",
)
ABSENT = names("configparser fsspec importlib.metadata numpy pyarrow rich tomllib")
UNUSED = RESTORING | OTHERS | ABSENT


def imported(*arguments: str | Path) -> set[str]:
    """The modules that a command has imported when it ends well."""
    ran = subprocess.run(
        [sys.executable, "-c", _LISTED, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if "TIDELOG" not in name},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    mark, *modules = ran.stderr.splitlines()[-1].split()
    assert mark == "imported"
    return set(modules)


def test_the_package_alone_imports_none_of_its_modules() -> None:
    script = "import sys, tidelog; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(run.stdout.split())
    assert not modules & LIBRARIES
    assert {name for name in modules if name.startswith("tidelog")} == {"tidelog", "tidelog.public"}


def added_command(site: Path, target: str) -> Path:
    """A directory of packages with one that adds the command `tide`, found at `target`."""
    info = site / "tide_tables-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tide-tables\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tidelog.commands]\ntide = {target}\n")
    (site / "tide_tables.py").write_text(
        "from tidelog.cli import LazyCommand\n"
        'LAZY = LazyCommand("tide_tables_that_lack", "Print tide tables.")\n'
        "OTHER = print\n"
    )
    return site


def command_line(site: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command where these packages are installed, too."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])},
        check=False,
    )


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("absent_tables:LAZY", "ModuleNotFoundError: No module named 'absent_tables'"),
        ("tide_tables:ABSENT", "AttributeError: module 'tide_tables' has no attribute 'ABSENT'"),
        ("tide_tables:OTHER", "TypeError: it refers to builtin_function_or_method"),
    ],
)
def test_a_command_of_another_package_that_is_broken_is_left_out_with_a_warning(
    target: str, reason: str, tmp_path: Path
) -> None:
    site = added_command(tmp_path / "site", target)
    listed = command_line(site, "--help")
    assert listed.returncode == 0 and "\n  checkpoints " in listed.stdout
    assert "\n  bench " in listed.stdout and "\n  tide " not in listed.stdout
    (warning,) = listed.stderr.splitlines()
    assert warning.startswith("Warning: command 'tide' of package tide-tables is left out, as")
    assert reason in warning
    assert command_line(site, "tide").returncode == 2
    assert command_line(site, "config", "explain", "memory").stderr == ""


def test_a_command_of_another_package_that_fails_when_it_runs_is_named(tmp_path: Path) -> None:
    site = added_command(tmp_path / "site", "tide_tables:LAZY")
    listed = command_line(site, "--help")
    assert (listed.stderr, "\n  tide " in listed.stdout) == ("", True)
    failed = command_line(site, "tide")
    assert failed.returncode == 1
    assert "Error: command 'tide' of package tide_tables" in failed.stderr
    assert "No module named 'tide_tables_that_lack'" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)], ids=" ".join)
def test_the_command_line_itself_imports_no_command(arguments: tuple[str, ...]) -> None:
    modules = imported(*arguments)
    assert not modules & (RUNTIME | LIBRARIES | {"tidelog.cli.run.run"})


def test_the_options_of_run_import_nothing_that_runs() -> None:
    modules = imported("run", "--help")
    assert "tidelog.runtime.config" in modules
    assert not modules & (RUNTIME | LIBRARIES | UNUSED)


def test_a_run_imports_what_it_uses_and_a_second_one_what_restores(
    text: Path, tmp_path: Path
) -> None:
    """The second one shows that the names above are those of modules that do the work."""
    run = ("run", "wordcount", "--input", text, "--store", tmp_path / "store", "--json")
    modules = imported(*run, "--output", tmp_path / "counts")
    assert modules >= RUNTIME
    assert sorted(modules & UNUSED) == []
    assert "tidelog.runtime.restore.fit" in imported(*run, "--output", tmp_path / "counts")


def test_no_name_of_a_module_that_should_not_be_imported_is_out_of_date() -> None:
    for name in sorted(RUNTIME | UNUSED):
        if name.startswith("tidelog"):
            path = ROOT / "src" / name.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), name


_INTERRUPTS = """
import os, signal, sys
class Finder:
    @staticmethod
    def find_spec(name, *others):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize("module", ["lazy_loader", "tidelog.__main__", "tidelog.cli"])
def test_an_interrupt_in_the_first_imports_ends_a_command_without_a_word(
    module: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_INTERRUPTS.format(module=module))
    ran = subprocess.run(
        [sys.executable, "-m", "tidelog", "run", "--help"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")
