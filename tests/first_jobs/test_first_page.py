"""The page that a new user reads first: its commands run as they are printed, and print what it
says."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.documentation import ROOT

PAGE = (ROOT / "docs/start/first-job.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs commands, and `tidelog` is one, as the first block of the page makes it."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    tidelog = scripts / "tidelog"
    tidelog.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidelog "$@"\n')
    tidelog.chmod(0o755)
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"}
    return lambda command: subprocess.run(
        ["sh", "-ec", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_command_of_the_first_page_does_what_it_says(tmp_path: Path, shell: Shell) -> None:
    kind, setting_up = BLOCKS[0]
    assert kind == "" and "pip install -q ." in setting_up
    printed = ""
    checked = 0
    for kind, block in BLOCKS[1:]:
        if kind == "python":
            (tmp_path / "revenue.py").write_text(block)
        elif kind == "json":
            shown = [json.loads(line) for line in block.splitlines()]
            found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
            assert sorted(map(str, found)) == sorted(map(str, shown))
            checked += 1
        else:
            ran = shell(block)
            assert ran.returncode == 0, ran.stderr
            printed = ran.stdout
    assert checked == 2


def test_the_program_of_the_home_page_runs_by_its_command(tmp_path: Path, shell: Shell) -> None:
    home = (ROOT / "docs/index.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", home, re.DOTALL)
    [command] = re.findall(r"^tidelog run .*$", home, re.MULTILINE)
    assert len([line for line in program.splitlines() if line]) <= 10
    (tmp_path / "revenue.py").write_text(program)
    (tmp_path / "orders").mkdir()
    orders = [{"country": "nl", "amount": 3}, {"country": "at", "amount": 4}]
    text = "".join(json.dumps(order) + "\n" for order in [*orders, orders[0]])
    (tmp_path / "orders" / "1.jsonl").write_text(text)
    for _ in range(2):
        ran = shell(command)
        assert ran.returncode == 0, ran.stderr
    lines = [line for part in (tmp_path / "revenue").glob("part-*") for line in part.open()]
    revenue = [{"country": "nl", "revenue": 6}, {"country": "at", "revenue": 4}]
    assert list(map(json.loads, lines)) == revenue


def test_the_commands_of_the_readme_show_what_a_job_has_stored(
    tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.py").write_text("the tide\n" * 1000)
    readme = (ROOT / "README.md").read_text()
    start = next(line for line in readme.splitlines() if "tidelog run wordcount" in line)
    run = start.split(" && ")[-1]
    run = re.sub(r'"\$\(.*\)"', "texts", run)  # in place of all of Python's sources
    shown = re.search(r"```\n(\.venv/bin/tidelog checkpoints list.*?)```", readme, re.DOTALL)
    assert shown is not None
    commands = [line.partition("#")[0] for line in shown.group(1).splitlines()]
    for command in [run, *(line for line in commands if "tidelog ui" not in line)]:
        ran = shell(command.replace(".venv/bin/tidelog", "tidelog"))
        assert (ran.returncode, bool(ran.stdout or ran.stderr)) == (0, True), (command, ran.stderr)
    counts = [line for part in (tmp_path / "out/counts").glob("part-*") for line in part.open()]
    assert {json.loads(line)["word"]: json.loads(line)["count"] for line in counts} == {
        "the": 1000,
        "tide": 1000,
    }
