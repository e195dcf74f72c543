"""Where the Python of a peer is looked for, and what is said when there is none."""

import sys
from pathlib import Path

import pytest

from tidelog_bench.peers import systems
from tidelog_bench.peers.systems import System, interpreter, missing

NOWHERE: tuple[Path, ...] = ()


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> str:
    """A system that no environment has."""
    system = System("other", "Other", "no_such_module", "other_count", "other", "peers")
    monkeypatch.setitem(systems.SYSTEMS, "other", system)
    return "other"


def python_with(root: Path, name: str, module: str) -> Path:
    """An environment whose Python finds a module."""
    (root / "site").mkdir(parents=True)
    (root / "site" / f"{module}.py").write_text("")
    python = root / ".tools" / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={root}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def test_tidelog_is_never_missing() -> None:
    assert missing("tidelog", {}, NOWHERE) is None
    assert interpreter("tidelog", {}, NOWHERE) == Path(sys.executable)


def test_a_peer_that_is_nowhere_is_missing_with_the_commands_that_install_it(unknown: str) -> None:
    reason = missing(unknown, {}, NOWHERE)

    assert reason is not None
    assert "Other is not installed" in reason
    assert "`just peers`" in reason
    assert "`pip install 'tidelog[peers]'`" in reason
    assert "TIDELOG_PEER_OTHER" in reason


def test_a_peer_in_the_tools_of_a_checkout_is_found(unknown: str, tmp_path: Path) -> None:
    python = python_with(tmp_path, "peer-other", "no_such_module")

    assert interpreter(unknown, {}, (tmp_path,)) == python
    assert missing(unknown, {}, (tmp_path,)) is None


def test_a_python_that_is_named_comes_before_the_tools(unknown: str, tmp_path: Path) -> None:
    python_with(tmp_path / "tools", "peer-other", "no_such_module")
    named = python_with(tmp_path / "named", "any", "no_such_module")

    variables = {"TIDELOG_PEER_OTHER": str(named)}
    assert interpreter(unknown, variables, (tmp_path / "tools",)) == named


def test_a_python_that_is_named_and_has_no_such_module_is_the_reason(
    unknown: str, tmp_path: Path
) -> None:
    python_with(tmp_path, "peer-other", "no_such_module")
    for named in (sys.executable, str(tmp_path / "absent")):
        reason = missing(unknown, {"TIDELOG_PEER_OTHER": named}, (tmp_path,))
        assert reason == (
            f"TIDELOG_PEER_OTHER is {named}, which is no Python with `no_such_module`"
        )


def test_a_peer_on_the_jvm_is_missing_where_there_is_no_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system = System("jvm", "Jvm", "json", "jvm_count", "jvm", java=True)
    monkeypatch.setitem(systems.SYSTEMS, "jvm", system)

    reason = missing("jvm", {"PATH": str(tmp_path)}, NOWHERE)
    assert reason is not None
    assert "needs Java" in reason
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("")
    assert missing("jvm", {"JAVA_HOME": str(tmp_path), "PATH": ""}, NOWHERE) is None
