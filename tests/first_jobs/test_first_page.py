"""The page that a new user reads first: its commands run as they are printed, and print what it
says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documentation import ROOT

PAGE = (ROOT / "docs/start/first-job.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What the first block of the page makes: `tidelog` is a command."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    tidelog = scripts / "tidelog"
    tidelog.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidelog "$@"\n')
    tidelog.chmod(0o755)
    return os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}"}


def test_every_command_of_the_first_page_does_what_it_says(
    tmp_path: Path, environment: dict[str, str]
) -> None:
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
            ran = subprocess.run(
                ["sh", "-ec", block],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 0, ran.stderr
            printed = ran.stdout
    assert checked == 2
