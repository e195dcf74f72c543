"""What all commands of `tidelog spark` promise: a cheap --help, documented JSON, no pyspark."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.cli import lay_out, tidelog
from tests.unit.cli.test_cli_json_docs import DOCUMENT, keys
from tests.unit.spark.synthetic import Synthetic, roll_up_object
from tidelog.cli import spark_group
from tidelog.spark.plugin.options import OPTIONS

COMMANDS = spark_group.lazy_commands  # type: ignore[attr-defined]
ON_CHECKPOINTS = ["checkpoints", "doctor", "export"]


def loaded(script: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after a script."""
    command = [sys.executable, "-c", script + "\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, check=True).stdout.decode().split())


def test_neither_tidelog_nor_its_spark_side_imports_pyspark() -> None:
    modules = loaded("import tidelog, tidelog.spark, tidelog.cli.spark.conf")
    assert not modules & {"pyspark", "py4j", "pandas", "pyarrow"}


def test_help_imports_no_command() -> None:
    modules = loaded(
        "from click.testing import CliRunner\n"
        "from tidelog.cli import main\n"
        "assert CliRunner().invoke(main, ['spark', '--help']).exit_code == 0"
    )
    assert "tidelog.spark" not in modules
    assert not {name for name in modules if name.startswith("tidelog.cli.spark")}


def test_help_names_every_command_as_its_module_does() -> None:
    shown = tidelog("spark", "--help").stdout
    for name, command in COMMANDS.items():
        assert f"  {name} " in shown
        assert command.load().name == name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    result = tidelog("spark", name, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout and "--debug" in result.stdout
    assert ("--endpoint" in result.stdout) is (name in ON_CHECKPOINTS)
    if name == "conf":
        flags = [f"--{option.argument.replace('_', '-')} " for option in OPTIONS]
        assert [flag for flag in flags if flag not in result.stdout] == []


@pytest.mark.parametrize("command", [[], ["nonsense"], ["checkpoints"], ["export"]])
def test_wrong_usage_exits_with_2(command: list[str]) -> None:
    assert tidelog("spark", *command).exit_code == 2


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("checkpoints", []),
        ("doctor", ["--deep"]),
        ("export", ["--dry-run", "--remove-log"]),
    ],
)
def test_every_field_is_documented(command: str, options: list[str], tmp_path: Path) -> None:
    synthetic = Synthetic(executors=1).virtual(13)
    if command != "export":  # it prints nothing but an error for a damaged checkpoint
        synthetic.without_line(12)
        synthetic.objects[roll_up_object(0)] = b"nonsense"
        synthetic.objects["commits/2"] = b"nonsense"
    result = tidelog("spark", command, lay_out(tmp_path, synthetic.objects), *options, "--json")
    section = DOCUMENT[DOCUMENT.index("## Errors") : DOCUMENT.index("## tidelog checkpoints")]
    start = DOCUMENT.index(f"## tidelog spark {command}")
    section += DOCUMENT[start : DOCUMENT.index("\n## ", start + 1)]
    found = set(keys(json.loads(result.stdout)))
    assert len(found) > 3
    assert {key for key in found if f"`{key}`" not in section} == set()


def test_every_check_of_doctor_is_documented(tmp_path: Path) -> None:
    source = Path(find_spec("tidelog.spark").origin or "").parent  # type: ignore[union-attr]
    texts = [
        (source / name).read_text() for name in ("plugin/doctor.py", "checkpoint/inspection.py")
    ]
    pattern = r'(?:\b(?:ok|warn|fail|_class|_from_error)\(\s*|_FILE_SYSTEM: Final = )"([a-z-]+)"'
    found = {name for text in texts for name in re.findall(pattern, text)}
    assert {"plugin", "stored-provider", "put-schemes", "file-system"} <= found
    section = DOCUMENT[DOCUMENT.index("## tidelog spark doctor") :]
    assert {name for name in found if f"`{name}`" not in section} == set()
