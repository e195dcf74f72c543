"""What a command does not use it does not import: every start compiles and runs what it imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_LISTED = """
import sys
sys.argv = ["tidelog", *sys.argv[1:]]
from tidelog.cli import main
try:
    main()
finally:
    print("imported", *sys.modules, file=sys.stderr)
"""

RUNTIME = {
    "tidelog.runtime.runner",
    "tidelog.runtime.graph",
    "tidelog.runtime.status.status",
    "tidelog.checkpoint.coordinator",
    "tidelog.checkpoint.manifest",
    "tidelog.state.backend",
    "tidelog.storage.port",
    "tidelog.table.rocksdb",
    "tidelog.effects",
}
LIBRARIES = {"asyncio", "fsspec", "msgspec", "rich", "rocksdict", "ssl", "tomllib", "zstandard"}
UNUSED = {
    # What restores and canonical savepoints need; a job that begins restores nothing.
    "tidelog.runtime.restore.fit",
    "tidelog.runtime.restore.migration",
    "tidelog.runtime.restore.rehearsal",
    "tidelog.runtime.restore.removed",
    "tidelog.state.restore.redistribute",
    "tidelog.state.restore.restorer",
    "tidelog.catalog.locate",
    "tidelog.checkpoint.local_first",
    # Data in flight, metrics, and questions of other processes: there are none.
    "tidelog.runtime.in_flight.codec",
    "tidelog.runtime.in_flight.redistribution",
    "tidelog.runtime.status.opentelemetry",
    "tidelog.runtime.status.prometheus",
    "tidelog.runtime.control.client",
    # Operators and connectors that the job does not have.
    "tidelog.runtime.operators.broadcast",
    "tidelog.runtime.operators.process",
    "tidelog.runtime.operators.window",
    "tidelog.runtime.tasks.caller_task",
    "tidelog.state.handles.keyed",
    "tidelog.connectors.files.parquet",
    # What commands, files of options and clouds need.
    "tidelog.cli.run.live",
    "tidelog.cli.store.options",
    "tidelog.ui",
    "tidelog.verify",
    "configparser",
    "fsspec",
    "importlib.metadata",
    "numpy",
    "pyarrow",
    "rich",
    "tomllib",
}


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
    assert {name for name in modules if name.startswith("tidelog")} == {"tidelog"}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)], ids=" ".join)
def test_the_command_line_itself_imports_no_command(arguments: tuple[str, ...]) -> None:
    modules = imported(*arguments)
    assert not modules & (RUNTIME | LIBRARIES | {"tidelog.cli.run.run"})


def test_the_options_of_run_import_nothing_that_runs() -> None:
    modules = imported("run", "--help")
    assert "tidelog.runtime.config" in modules
    assert not modules & (RUNTIME | LIBRARIES | UNUSED)


def test_a_plain_run_imports_what_it_uses(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.mkdir()
    (words / "a.txt").write_text("to be or not to be\n")
    modules = imported(
        *("run", "wordcount", "--input", words, "--store", tmp_path / "store"),
        *("--output", tmp_path / "counts", "--json"),
    )
    assert modules >= RUNTIME
    assert sorted(modules & UNUSED) == []


def test_a_second_run_imports_what_restores(tmp_path: Path) -> None:
    """The names above are those of modules that there are, and that do the work."""
    words = tmp_path / "words"
    words.mkdir()
    (words / "a.txt").write_text("to be or not to be\n")
    run = ("run", "wordcount", "--input", words, "--store", tmp_path / "store", "--json")
    imported(*run, "--output", tmp_path / "counts")
    modules = imported(*run, "--output", tmp_path / "counts")
    assert "tidelog.runtime.restore.fit" in modules
    assert "tidelog.runtime.restore.rehearsal" in modules


def test_no_name_of_a_module_that_should_not_be_imported_is_out_of_date() -> None:
    root = Path(__file__).parents[3] / "src"
    for name in RUNTIME | UNUSED:
        if name.startswith("tidelog"):
            path = root / name.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), name
