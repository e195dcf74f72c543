"""docs/guides/estimate.md shows what the commands print."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support.cli import tidelog

DOCUMENT = (Path(__file__).parents[3] / "docs" / "guides" / "estimate.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_the_example_is_what_is_printed(command: str, tmp_path: Path) -> None:
    at = next(n for n, block in enumerate(BLOCKS) if block.startswith(f"tidelog {command} --"))
    arguments = shlex.split(BLOCKS[at].replace("\\\n", " "))[1:]
    arguments = [str(tmp_path / a) if a.endswith(".png") else a for a in arguments]
    result = tidelog(*arguments)
    assert result.exit_code == 0, result.output
    printed = result.stdout.splitlines()
    for line in BLOCKS[at + 1].splitlines():
        shown = line.removesuffix("...").rstrip()
        assert any(found.startswith(shown) for found in printed), line
