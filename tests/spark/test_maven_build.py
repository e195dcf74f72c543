"""Maven and the compilation on first use make the same plug-in of the same sources."""

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.spark.support.session import ROOT
from tests.unit.spark.test_jar import CHECKS
from tidelog.spark.plugin.jar import plugin_jar

pytestmark = [pytest.mark.plugin_only, pytest.mark.usefixtures("spark_or_skip")]

SUCCEEDED = re.compile(r"^Tests: succeeded (\d+), failed 0,", re.MULTILINE)


def classes(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".class")}


def test_maven_makes_the_same_classes_and_runs_every_check(tmp_path: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("no `mvn` on the PATH: install Maven 3.8 or newer")
    # A copy, so that neither the checkout gets build output nor another build is in the way.
    shutil.copytree(ROOT / "native", tmp_path / "native", ignore=shutil.ignore_patterns("target"))
    shutil.copytree(ROOT / "tests" / "golden", tmp_path / "tests" / "golden")
    command = [maven, "-B", "--no-transfer-progress", "verify"]
    run = subprocess.run(
        command, cwd=tmp_path / "native", capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr
    passed = SUCCEEDED.findall(run.stdout)
    assert str(len(CHECKS)) in passed
    sources = next((tmp_path / "native/spark-state-store/target").glob("*-sources.jar"))
    made = sources.with_name(sources.name.replace("-sources", ""))
    assert classes(made) == classes(plugin_jar())
    with zipfile.ZipFile(sources) as archive:
        assert "tidelog/spark/TidelogPlugin.scala" in archive.namelist()
