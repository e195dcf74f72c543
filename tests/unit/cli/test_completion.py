"""Shells complete commands, options and their values, by the line that the reference documents."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TIDELOG = Path(sys.executable).with_name("tidelog")
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def completed(words: str) -> list[str]:
    """What bash offers for the last of these words."""
    count = len(words.split(" ")) - 1
    answer = subprocess.run(
        [str(TIDELOG)],
        env={
            **os.environ,
            "_TIDELOG_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(count),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in answer.stdout.split()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tidelog checkp", ["checkpoints"]),
        ("tidelog checkpoints sh", ["show"]),
        ("tidelog run wordcount --parallel", ["--parallelism"]),
        ("tidelog run wordcount --table me", ["memory"]),
    ],
)
def test_a_command_an_option_or_a_value_is_completed(words: str, offered: list[str]) -> None:
    assert completed(words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_prints_what_each_shell_reads(shell: str) -> None:
    [variable] = re.findall(r'^eval "\$\((\w+)=bash_source tidelog\)"$', PAGE.read_text(), re.M)
    answer = subprocess.run(
        [str(TIDELOG)],
        env={**os.environ, variable: f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{variable}={shell}_complete" in answer.stdout
