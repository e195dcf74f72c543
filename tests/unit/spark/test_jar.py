"""The plug-in's jar: found, compiled once, keyed by what made it."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.unit.spark.scala_checks import GOLDEN, SOURCES, ScalaChecks
from tests.unit.spark.spark_home import fake_java, fake_spark
from tidelog.errors import ConfigError
from tidelog.spark.plugin import jar
from tidelog.spark.plugin.jar import COMPILER_OPTIONS, compile_jar, plugin_jar, plugin_sources
from tidelog.spark.plugin.toolchain import SUPPORTED, Spark, find_java, find_spark, release_of

GREETING = (
    "package tiny\nobject Greeting { def text = new org.apache.spark.SparkConf().toString }\n"
)


def sources_in(root: Path, text: str = GREETING, folder: str = "scala") -> Path:
    path = root / folder / "tiny" / "Greeting.scala"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("TIDELOG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands in for the compiler: the jars it was asked for."""
    made: list[Path] = []

    def compile_nothing(files: object, classpath: object, target: Path, **_: object) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"jar")
        made.append(target)
        return target

    monkeypatch.setattr(jar, "compile_jar", compile_nothing)
    return made


def test_an_installation_has_its_versions_and_spark_home_goes_before_the_installed_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_spark(tmp_path / "spark", "4.1.4-vendor-1", "2.13.17")
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert find_spark() == Spark(home, "4.1.4-vendor-1", "2.13.17")
    assert find_spark(home).minor == "4.1"
    assert (release_of("4.3.0-SNAPSHOT"), release_of("master")) == ((4, 3), None)


def test_a_cache_that_cannot_be_written_to_is_named(
    compiled: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIDELOG_CACHE", str(tmp_path / "file" / "cache"))
    home = fake_spark(tmp_path / "spark", "4.3.0")
    with pytest.raises(ConfigError, match="set TIDELOG_CACHE to another directory"):
        plugin_jar(str(home))
    assert not compiled


@pytest.mark.parametrize("version", ["3.5.7", "4.0.1", "4.4.0", "4.10.0", "5.0.0"])
def test_an_unsupported_spark_is_refused(version: str, tmp_path: Path) -> None:
    home = fake_spark(tmp_path / "spark", version)
    with pytest.raises(ConfigError, match=r"4\.1, 4\.2, 4\.3.*pyspark==4\.3\.\*") as error:
        find_spark(home)
    assert error.value.found == version


def test_a_java_that_is_missing_is_an_error_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="JAVA_HOME"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="openjdk-17"):
        find_java()


def test_an_old_java_is_refused_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "jre", """echo 'openjdk version "11.0.2"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))
    spark = find_spark(fake_spark(tmp_path / "spark"))
    with pytest.raises(ConfigError, match="version 17 or newer"):
        compile_jar([], [], tmp_path / "out.jar", spark=spark)
    assert not (tmp_path / "out.jar").exists()


def test_a_jar_is_compiled_once(
    tmp_path: Path, compiled: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    home, root = fake_spark(tmp_path / "spark"), sources_in(tmp_path / "src")
    assert plugin_jar(home, sources=root) == plugin_jar(home, sources=root)
    assert len(compiled) == 1
    captured = capsys.readouterr()
    assert "compiling the plug-in for Spark 4.3.0 once" in captured.err
    assert captured.out == ""


def test_other_sources_spark_or_scala_make_another_jar_and_another_place_does_not(
    tmp_path: Path, compiled: list[Path]
) -> None:
    root = sources_in(tmp_path / "src")
    versions = [("4.3.0", "2.13.18"), ("4.3.1", "2.13.18"), ("4.3.0", "2.13.19")]
    homes = [fake_spark(tmp_path / f"spark-{i}", *v) for i, v in enumerate(versions)]
    jars = [plugin_jar(home, sources=root) for home in homes]
    assert plugin_jar(homes[0], sources=sources_in(tmp_path / "elsewhere")) == jars[0]
    sources_in(root, GREETING + "// changed\n")
    jars.append(plugin_jar(homes[0], sources=root))
    sources_in(root, GREETING, folder="spark-4.3/scala")
    jars.append(plugin_jar(homes[0], sources=root))
    assert len(set(jars)) == len(compiled) == 5


def test_only_the_folder_of_the_minor_version_is_compiled(tmp_path: Path) -> None:
    root = tmp_path / "src"
    for folder in ("scala", "spark-4.1/scala", "spark-4.3/scala"):
        sources_in(root, folder=folder)
    spark = find_spark(fake_spark(tmp_path / "spark", "4.3.0"))
    folders = {path.relative_to(root).parts[0] for path in plugin_sources(spark, root)}
    assert folders == {"scala", "spark-4.3"}
    with pytest.raises(ConfigError, match="install tidelog again"):
        plugin_sources(spark, tmp_path / "nothing")


COMPILER = """
[ "$1" = -version ] && echo 'openjdk version "17.0.1"' >&2 && exit
while [ "$1" != -d ]; do shift; done
mkdir "$2/tiny"
for class in Greeting 'Greeting$'; do sleep 0.2; echo "$class" >"$2/tiny/$class.class"; done
"""


def test_two_processes_that_compile_at_once_both_get_the_jar(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    fake_java(tmp_path, COMPILER)
    script = (
        "import sys; from pathlib import Path; from tidelog.spark.plugin.jar import plugin_jar\n"
        "print(plugin_jar(Path(sys.argv[1]), sources=Path(sys.argv[2])))"
    )
    home, root = fake_spark(tmp_path / "spark"), sources_in(tmp_path / "src")
    command = [sys.executable, "-c", script, str(home), str(root)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    one, other = (run.communicate()[0].strip() for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert one == other
    only = Path(one)
    assert list((cache / "spark").iterdir()) == [only]
    with zipfile.ZipFile(only) as archive:
        assert archive.testzip() is None
        assert {"tiny/Greeting.class", "tiny/Greeting$.class"} <= set(archive.namelist())


MAINS = {"core.CoreChecks": (), "format.FormatChecks": (GOLDEN,)}
CHECKS = [
    (f"{folder}.{folder.capitalize()}Checks", name)
    for folder in ("core", "format")
    for path in sorted((SOURCES / folder).glob("*.scala"))
    for name in re.findall(r'\bcheck\("([^"]+)"\)', path.read_text())
]


@pytest.fixture(scope="session")
def outcomes(scala_checks: ScalaChecks) -> dict[tuple[str, str], str | None]:
    """Why a check failed, or None, by its main object and its name."""
    return {
        (main, name): failure
        for main, arguments in MAINS.items()
        for name, failure in scala_checks.outcomes(main, *arguments).items()
    }


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check[1])
def test_in_scala(outcomes: dict[tuple[str, str], str | None], check: tuple[str, str]) -> None:
    assert outcomes[check] is None


def test_every_check_is_run(outcomes: dict[tuple[str, str], str | None]) -> None:
    assert sorted(outcomes) == sorted(CHECKS)


ROOT = Path(__file__).parents[3]
POMS = sorted((ROOT / "native").glob("*/pom.xml"))
NAMES = {"": "http://maven.apache.org/POM/4.0.0"}


@pytest.fixture
def project() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "native" / "pom.xml").getroot()


def texts(element: ElementTree.Element, path: str) -> list[str | None]:
    return [found.text for found in element.findall(path, NAMES)]


def test_scala_is_compiled_with_the_same_options(project: ElementTree.Element) -> None:
    assert texts(project, ".//args/arg") == list(COMPILER_OPTIONS)


def test_every_supported_spark_has_a_profile(project: ElementTree.Element) -> None:
    minors = [f"{major}.{minor}" for major, minor in SUPPORTED]
    assert texts(project, "profiles/profile/id") == [f"spark-{minor}" for minor in minors]
    assert texts(project, "profiles/profile/properties/spark.minor") == minors
    versions = texts(project, "profiles/profile/properties/spark.version")
    assert [(version or "").rpartition(".")[0] for version in versions] == minors


def test_every_module_has_the_version_of_the_library(project: ElementTree.Element) -> None:
    library = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    parents = [ElementTree.parse(pom).getroot() for pom in POMS]
    assert len(parents) == len(texts(project, "modules/module"))
    versions = [text for parent in parents for text in texts(parent, "parent/version")]
    assert {*texts(project, "version"), *versions} == {library}
