"""Settings from file, environment and command line: precedence, origins, and every wrong one.

Texts of times and sizes: what is shown is read back.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import ConfigError, JobConfig, UploadConfig, load_config
from tidelog.options.units import parse_duration, parse_size, show_duration
from tidelog.settings import OPTIONS, Setting, flag, resolve, variable


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return path


def test_a_file_has_the_names_of_python_and_units(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'parallelism = 2\nmemory = "64 MiB"\nallow_non_restored_state = ["old", "show/last"]\n'
        'work_dir = "/tmp/tables"\n[upload]\nlinger = "20 ms"\n[materialize]\nenabled = false\n'
        'bytes_per_s = "50 MB/s"\n[retry]\nhedge_after = "off"\n[rocksdb]\ncompression = "zstd"\n',
    )
    config = load_config(file)
    assert (config.parallelism, config.memory, config.upload.linger) == (2, 64 << 20, 0.02)
    assert config.allow_non_restored_state == ("old", "show/last")
    assert config.work_dir == Path("/tmp/tables")
    assert (config.materialize.enabled, config.materialize.bytes_per_s) == (False, 50_000_000)
    assert (config.retry.hedge_after, config.rocksdb.compression) == (None, "zstd")


def test_the_command_line_wins_over_the_environment_and_this_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'retain = 5\nparallelism = 5\n[upload]\nlinger = "5 ms"\n')
    environment = {"TIDELOG__PARALLELISM": "6", "TIDELOG__UPLOAD__LINGER": "6 ms", "PATH": "/bin"}
    flags = [Setting("upload.linger", "7 ms", "option --upload-linger")]
    found = {e.declared.name: e for e in resolve(file, environment, flags).effective}
    assert (found["retain"].value, found["retain"].origin) == (5, str(file))
    assert found["parallelism"].value == 6
    assert found["parallelism"].origin == "environment variable TIDELOG__PARALLELISM"
    assert found["upload.linger"].value == pytest.approx(0.007)
    assert found["upload.linger"].origin == "option --upload-linger"
    assert found["key_groups"].origin == "default"
    options = {"upload.linger": "8 ms"}
    assert load_config(file, environment, options).upload.linger == pytest.approx(0.008)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "\ufeffretain = 5\n")).retain == 5


@pytest.mark.parametrize("name", OPTIONS)
def test_the_shown_default_of_every_option_is_read_back_as_text_and_as_toml(
    name: str, tmp_path: Path
) -> None:
    declared = OPTIONS[name]
    option, default = declared.option, declared.default
    assert option.read(option.show(default)) == default
    *section, key = declared.path
    head = f"[{'.'.join(section)}]\n" if section else ""
    file = written(tmp_path, f"{head}{key} = {option.toml(default)}\n")
    assert load_config(file) == JobConfig()


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_says_what_it_does_and_when_to_change_it(name: str) -> None:
    option = OPTIONS[name].option
    for text in (option.help, option.when):
        assert text.rstrip().endswith((".", "!")) and "  " not in text
    assert option.expected


def test_every_option_has_a_flag_and_a_variable_of_its_own() -> None:
    flags = [each for o in OPTIONS.values() for each in (flag(o), *o.option.aliases)]
    assert len(flags) == len(set(flags))
    assert len({variable(o) for o in OPTIONS.values()}) == len(OPTIONS)


WRONG = [
    ("paralelism = 2", "option paralelism", "write parallelism, if that is meant"),
    ('[upload]\nlingr = "1 s"', "option upload.lingr", "write upload.linger, if that is meant"),
    ('[uploads]\nlinger = "1 s"', "option uploads", "write upload, if that is meant"),
    ('linger = "1 s"', "option linger", "write upload.linger, if that is meant"),
    ("zzz = 1", "option zzz", "`tidelog config explain` lists all options"),
    ('upload = "fast"', "upload in", "expected a table [upload] with options; found 'fast'"),
    ('[storage]\ns3 = "s3fs"', "storage.s3 in", "a table [storage.s3] with options"),
    ('[storage.s3]\nclient = "boto3"', "one of obstore, s3fs", "found boto3"),
    ("[upload]\nlinger = 20", "option upload.linger", "found 20, which has no unit"),
    ('[upload]\nlinger = "20"', "a time with its unit, such as 250 ms", "found '20'"),
    ('[upload]\nlinger = "2 weeks"', "from 0 s to 1 min", "found '2 weeks'"),
    ('[upload]\nlinger = "2 min"', "from 0 s to 1 min", "found 2 min"),
    ('[upload]\nlinger = "-1 s"', "upload.linger", "found '-1 s'"),
    ('memory = "1 GB!"', "a size such as 64 MiB; from 32 MiB to 4 TiB", "found '1 GB!'"),
    ('memory = "1 MiB"', "from 32 MiB to 4 TiB", "found 1 MiB"),
    ("memory = 1.5", "a size such as 64 MiB", "found 1.5"),
    ("memory = true", "a size such as 64 MiB", "found True"),
    ('memory = ["1 GiB"]', "a size such as 64 MiB", "found ['1 GiB']"),
    ("retain = 0", "a whole number; at least 1", "found 0"),
    ("retain = 2.5", "a whole number; at least 1", "found 2.5"),
    ('retain = "many"', "a whole number; at least 1", "found 'many'"),
    ('changelog = "perhaps"', "true or false", "found 'perhaps'"),
    ('mode = "sometimes"', "one of exactly-once, at-least-once", "found sometimes"),
    ("mode = 1", "one of exactly-once, at-least-once", "found 1"),
    ("[retry]\njitter = 1.5", "a number; from 0 to 1", "found 1.5"),
    ('[retry]\njitter = "nan"', "a number; from 0 to 1", "found nan"),
    ("[retry]\nattempts = 0", "at least 1, or unlimited", "found 0"),
    ('[retry]\ndeadline = "off"', "more than 0 s", "found 'off'"),
    ('work_dir = ""', "a path, or temporary", "found an empty text"),
    ("allow_non_restored_state = [1]", "names: a list in TOML", "found [1]"),
    ('[rocksdb]\ncompression = "gzip"', "one of none, lz4, lz4hc, zstd", "found gzip"),
    ("[upload]\ncompression_level = 23", "from 0 to 22", "found 23"),
    ("parallelism = 200", "a number from 1 to 128, the number of key groups", "found 200"),
    ("key_groups = 0", "option key_groups", "found 0"),
    ("parallelism = ", "configuration file", "correct the file"),
]


@pytest.mark.parametrize(("text", "expected", "found"), WRONG, ids=[each[0] for each in WRONG])
def test_a_wrong_setting_is_told_with_what_is_expected(
    text: str, expected: str, found: str, tmp_path: Path
) -> None:
    [problem] = resolve(written(tmp_path, text), {}, ()).problems
    told = str(problem)
    assert expected in told and found in told
    if expected != "a number from 1 to 128, the number of key groups":
        assert str(tmp_path / "job.toml") in told
    with pytest.raises(ConfigError):
        load_config(tmp_path / "job.toml")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"file": "none.toml"}, r"configuration file .*none\.toml"),
        ({"environment": {"TIDELOG__UPLOAD__LINGR": "1"}}, "write TIDELOG__UPLOAD__LINGER"),
        ({"environment": {"TIDELOG__MEMORY": "lots"}}, r"memory \(environment .*TIDELOG__MEMORY\)"),
        ({"options": {"upload.lingers": "1 s"}}, r"write upload\.linger"),
        # Also where another value wins:
        ({"environment": {"TIDELOG__RETAIN": "0"}, "options": {"retain": 2}}, "retain .*found 0"),
    ],
)
def test_what_is_wrong_is_named_wherever_it_stands(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(**given)
    assert load_config(environment={"TIDELOG_PORT": "tcp://10.0.0.1:80"}) == JobConfig()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"retain": 0}, "option retain; expected a whole number; at least 1; found 0"),
        ({"retain": True}, "option retain"),
        ({"memory": "1 GiB"}, "option memory; .*found '1 GiB'.*Next: pass bytes, such as 64 << 20"),
        ({"memory": 64 << 40}, "option memory; .*to 4 TiB; found"),
        ({"upload": UploadConfig(linger=-1)}, "upload.linger; .*from 0 s to 1 min; found -1"),
        ({"upload": UploadConfig(linger=float("nan"))}, "option upload.linger"),
        ({"allow_non_restored_state": "old"}, "option allow_non_restored_state"),
        ({"work_dir": "/tmp"}, "work_dir; expected a path, or None.*Next: pass a pathlib.Path"),
        ({"upload": UploadConfig(linger="20 ms")}, "Next: pass seconds, such as 0.25"),
        ({"workers": "auto"}, "Next: pass a number"),
        ({"mode": None}, "option mode"),
        ({"upload": {"linger": 0.02}}, "option upload; expected a UploadConfig, .*found {'linger'"),
        ({"retry": None}, "option retry; expected a RetryPolicy"),
    ],
)
def test_objects_of_python_are_checked_by_the_same_declarations(
    wrong: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        JobConfig(**wrong)  # type: ignore[arg-type]


TIMES = [("250 ms", 0.25), ("250ms", 0.25), ("2 min", 120), ("2m", 120), ("0", 0), ("1d", 86_400)]
NO_TIMES = ["", "1", "s", "-1s", "1  s", "1 week", "1e3s", "1 S"]
SIZES = [("64 MiB", 64 << 20), ("64MiB", 64 << 20), ("20 kB", 20_000), ("200", 200)]
NO_SIZES = ["", "MiB", "-1", "64 mib", "64 Mb", "1e6", "64 MiB/s"]


@pytest.mark.parametrize(("text", "seconds"), [*TIMES, *((text, None) for text in NO_TIMES)])
def test_a_time_is_a_number_with_a_unit(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "count"), [*SIZES, *((text, None) for text in NO_SIZES)])
def test_a_size_is_a_number_that_may_have_a_unit(text: str, count: int | None) -> None:
    assert parse_size(text) == count


@given(st.floats(0, 1e9).map(lambda seconds: round(seconds, 6)))
def test_a_time_that_is_shown_is_read_back(seconds: float) -> None:
    read = parse_duration(show_duration(seconds))
    assert read is not None and read == pytest.approx(seconds, rel=1e-12)
