"""What the word count on Spark takes for words, and what it says to wrong arguments."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from tests.spark.support.stores import missing
from tidelog.examples.spark_wordcount import SEPARATORS, main
from tidelog.spark.plugin.toolchain import find_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(directory: Path, *options: str) -> Result:
    where = ("--input", str(directory), "--checkpoint", str(directory / "checkpoint"))
    return CliRunner().invoke(main, [*where, *options])


def test_words_are_split_where_str_split_does(spark: "SparkSession") -> None:
    from pyspark.sql import functions  # noqa: PLC0415  (the test skips without it)

    surrogates = range(0xD800, 0xE000)
    characters = [chr(code) for code in range(sys.maxunicode + 1) if code not in surrogates]
    text = "".join(f"a{each}{each}b" for each in characters)
    texts = spark.createDataFrame([(text,)], "text string")
    [row] = texts.select(functions.split("text", SEPARATORS)).collect()
    assert row[0] == text.split()


@pytest.mark.parametrize("options", [(), ("--stock",)])
def test_a_missing_pyspark_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    found = run(tmp_path, *options)
    assert found.exit_code == 2
    assert "pip install 'tidelog[spark]'" in found.output


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_spark_without_its_python_module_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(find_spark().home))
    monkeypatch.setitem(sys.modules, "pyspark", None)
    found = run(tmp_path)
    assert found.exit_code == 2
    assert "Error: module pyspark; expected" in found.output


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("options", [(), ("--stock",)])
def test_a_missing_java_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = run(tmp_path, *options)
    assert found.exit_code == 2
    assert "Error: Java; expected" in found.output


def test_a_run_without_input_and_a_setting_without_value_are_refused(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["--checkpoint", str(tmp_path)]).exit_code == 2
    found = run(tmp_path, "--conf", "spark.driver.memory")
    assert found.exit_code == 2
    assert "write it as key=value" in found.output
