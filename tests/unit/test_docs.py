"""The documentation: a site without a broken link, and names that exist."""

import ast
import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.documentation import BLOCKS, ROOT
from tidelog import JobConfig


def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "reference" / "api" / "index.html").is_file()


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_code_block_imports_names_that_exist(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidelog"):
            module = import_module(node.module or "")
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert missing == []


def option_names(config: type, prefix: str = "") -> set[str]:
    """Fields of a configuration as the docs name them, such as `upload.linger`."""
    names = set()
    for field in fields(config):
        names.add(prefix + field.name)
        part = field.default_factory
        if is_dataclass(part):
            names |= option_names(part, f"{field.name}.")
    return names


def test_the_options_beside_those_of_flink_exist() -> None:
    page = (ROOT / "docs" / "reference" / "flink.md").read_text()
    table = page[page.index("## Options") : page.index("## Metrics")]
    shown = {
        name
        for row in table.splitlines()[4:]
        if row.startswith("|")
        for name in re.findall(r"`([a-z_.]+)`", row.split("|")[3])
    }
    assert shown and shown - option_names(JobConfig) == set()


def test_the_metrics_beside_those_of_flink_exist() -> None:
    page = (ROOT / "docs" / "reference" / "flink.md").read_text()
    status = (ROOT / "src" / "tidelog" / "runtime" / "status" / "status.py").read_text()
    sizes = (ROOT / "src" / "tidelog" / "checkpoint" / "sizes.py").read_text()
    table = page[page.index("## Metrics") :]
    shown = {
        name
        for row in table.splitlines()
        if row.startswith("| `") or row.startswith("| no")
        for name in re.findall(r"`([a-z0-9_]+)`", row.split("|")[2])
    }
    assert len(shown) > 20
    for name in shown:
        bare = name.removeprefix("store_").removeprefix("checkpoint_")
        assert f'"{name}"' in status or f'"{bare}"' in status or f"    {bare}: int" in sizes, name
