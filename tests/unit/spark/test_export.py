"""`tidelog spark export`: every live changelog as the file that Spark alone would have written."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import files, lay_out, tidelog
from tests.support.damage import flipped, truncated
from tests.unit.spark.synthetic import Synthetic, roll_up_object
from tests.wire.servers import S3Server


def export(directory: Path, *options: str) -> dict[str, Any]:
    result = tidelog("spark", "export", directory, *options, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def state_files(directory: Path) -> dict[str, bytes]:
    return {
        name.removeprefix("state/"): data
        for name, data in files(directory).items()
        if name.startswith("state/") and name.endswith(".changelog")
    }


def modelled(synthetic: Synthetic, since: int = 0) -> dict[str, bytes]:
    return {n.path: data for n, data in synthetic.model.items() if n.version >= since}


def test_export_writes_every_changelog_as_it_was(tmp_path: Path) -> None:
    synthetic = Synthetic(operators=2, stores=("default", "left")).virtual(12)
    directory = lay_out(tmp_path, synthetic.objects)
    report = export(directory)
    assert state_files(directory) == modelled(synthetic)
    assert report["written"] == len(synthetic.model)
    assert report["written_bytes"] == sum(map(len, synthetic.model.values()))


def test_export_joins_the_pieces_of_large_changelogs(tmp_path: Path) -> None:
    synthetic = Synthetic(piece_bytes=10).virtual(3)
    directory = lay_out(tmp_path, synthetic.objects)
    export(directory)
    assert state_files(directory) == modelled(synthetic)


def test_export_leaves_everything_else_as_it_is(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3)
    directory = lay_out(tmp_path, synthetic.objects)
    export(directory)
    kept = {name: data for name, data in files(directory).items() if name in synthetic.objects}
    assert kept == synthetic.objects


def test_export_again_writes_nothing(tmp_path: Path) -> None:
    directory = lay_out(tmp_path, Synthetic().virtual(3).objects)
    export(directory)
    before = files(directory)
    report = export(directory)
    assert (report["written"], report["present"]) == (0, 6)
    assert files(directory) == before


def test_export_goes_on_where_another_ended(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3)
    name, data = next(iter(synthetic.model.items()))
    directory = lay_out(tmp_path, {**synthetic.objects, f"state/{name.path}": data})
    report = export(directory)
    assert (report["written"], report["present"]) == (5, 1)
    assert state_files(directory) == modelled(synthetic)


def test_export_never_overwrites_a_different_file(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3)
    name = next(iter(synthetic.model))
    directory = lay_out(tmp_path, {**synthetic.objects, f"state/{name.path}": b"mine"})
    result = tidelog("spark", "export", directory)
    assert result.exit_code == 1
    assert f"state/{name.path}" in result.stderr and "nothing was overwritten" in result.stderr
    assert state_files(directory)[name.path] == b"mine"


def test_a_dry_run_reads_everything_and_writes_nothing(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3)
    directory = lay_out(tmp_path, synthetic.objects)
    report = export(directory, "--dry-run", "--remove-log")
    assert (report["dry_run"], report["written"], report["stripped"]) == (True, 6, 3)
    assert report["removed"] == 6
    assert files(directory) == synthetic.objects


def test_export_leaves_out_what_no_retained_batch_needs(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(25).snapshots(10).snapshots(20).purge(until=15)
    directory = lay_out(tmp_path, synthetic.objects)
    report = export(directory)
    assert state_files(directory) == modelled(synthetic, since=10)
    assert report["expired"] == 18


def test_a_commit_that_waits_for_its_roll_up_is_not_a_batch_to_restore(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(8).snapshots(5)
    gone = [f"offsets/{batch}" for batch in range(5)]
    gone += sorted(name for name in synthetic.objects if name.endswith("-00000000.seg"))[:1]
    for name in gone:
        del synthetic.objects[name]
    directory = lay_out(tmp_path, synthetic.objects)
    export(directory, "--remove-log")
    assert state_files(directory) == modelled(synthetic, since=5)


def test_export_finds_what_the_index_has_lost(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(13)
    synthetic.objects["commits/12"] = synthetic.objects["commits/12"].rsplit(b"\n", 1)[0]
    directory = lay_out(tmp_path, synthetic.objects)
    export(directory)
    assert state_files(directory) == modelled(synthetic)


def test_stock_files_beside_virtual_ones_stay(tmp_path: Path) -> None:
    synthetic = Synthetic().stock(3).virtual(3)
    directory = lay_out(tmp_path, synthetic.objects)
    report = export(directory)
    assert report["written"] == 6
    assert state_files(directory) == modelled(synthetic)


def test_with_remove_log_what_is_left_is_a_checkpoint_of_spark_alone(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(13).failed_attempt()
    stock = Synthetic().stock(13)
    directory = lay_out(tmp_path, synthetic.objects)
    report = export(directory, "--remove-log")
    assert files(directory) == stock.objects
    assert report["stripped"] == 13
    assert report["removed"] == 13 * 2 + 2 + 1


def test_removing_the_log_twice_is_removing_it_once(tmp_path: Path) -> None:
    directory = lay_out(tmp_path, Synthetic().virtual(3).objects)
    export(directory, "--remove-log")
    before = files(directory)
    report = export(directory, "--remove-log")
    assert (report["written"], report["stripped"], report["removed"]) == (0, 0, 0)
    assert files(directory) == before


def test_checksum_files_of_rewritten_files_go_with_them(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(2)
    sidecars = {f"commits/.{batch}.crc": b"old" for batch in range(2)}
    name = next(iter(synthetic.model))
    folder, _, leaf = name.path.rpartition("/")
    sidecars[f"state/{folder}/.{leaf}.crc"] = b"old"
    directory = lay_out(tmp_path, {**synthetic.objects, **sidecars})
    export(directory, "--remove-log")
    assert not sidecars.keys() & files(directory).keys()


@pytest.mark.parametrize("damage", [flipped, truncated])
def test_damage_is_named_and_the_log_stays(damage: Any, tmp_path: Path) -> None:
    synthetic = Synthetic(executors=1).virtual(3)
    segment = synthetic.segments()[1]
    synthetic.objects[segment] = damage(synthetic.objects[segment])
    directory = lay_out(tmp_path, synthetic.objects)
    result = tidelog("spark", "export", directory, "--remove-log")
    assert result.exit_code == 1
    assert segment in result.stderr
    left = files(directory)
    assert {name: left[name] for name in synthetic.objects} == synthetic.objects
    assert state_files(directory).items() <= modelled(synthetic).items()


def test_a_missing_segment_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    synthetic = Synthetic(executors=1).virtual(3)
    segment = synthetic.segments()[1]
    del synthetic.objects[segment]
    directory = lay_out(tmp_path, synthetic.objects)
    result = tidelog("spark", "export", directory)
    assert result.exit_code == 1
    assert segment in result.stderr
    assert files(directory) == synthetic.objects


def test_an_index_that_points_wrongly_never_gives_wrong_state(tmp_path: Path) -> None:
    synthetic = Synthetic(executors=1).virtual(2)
    first, second = synthetic.documents[1].entries
    swapped = [
        type(first)(first.name, second.bytes, second.pieces),
        type(first)(second.name, first.bytes, first.pieces),
    ]
    synthetic.commit(1, [first.name, second.name], {entry.name: entry for entry in swapped})
    directory = lay_out(tmp_path, synthetic.objects)
    result = tidelog("spark", "export", directory)
    assert result.exit_code == 1
    assert first.name.path in result.stderr or second.name.path in result.stderr
    assert state_files(directory).items() <= modelled(synthetic).items()


def test_export_says_what_must_be_stopped_and_which_settings_to_keep(tmp_path: Path) -> None:
    result = tidelog("spark", "export", lay_out(tmp_path, Synthetic().virtual(1).objects))
    assert "must be stopped" in result.stderr
    assert "checkpointFormatVersion=2" in result.stdout
    assert "spark.plugins" in result.stdout


@pytest.mark.parametrize("options", [[], ["--remove-log"]])
def test_a_damaged_commit_is_refused_before_anything_is_written(
    options: list[str], tmp_path: Path
) -> None:
    synthetic = Synthetic().virtual(3)
    synthetic.objects["commits/1"] = b"nonsense"
    directory = lay_out(tmp_path, synthetic.objects)
    result = tidelog("spark", "export", directory, *options)
    assert result.exit_code == 1
    assert "object commits/1 is damaged" in result.stderr
    assert files(directory) == synthetic.objects


def test_the_log_stays_while_a_segment_cannot_say_what_it_holds(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(3).failed_attempt()
    orphan = synthetic.segments()[-1]
    synthetic.objects[orphan] = truncated(synthetic.objects[orphan])
    directory = lay_out(tmp_path, synthetic.objects)
    result = tidelog("spark", "export", directory, "--remove-log")
    assert result.exit_code == 1
    assert orphan in result.stderr
    assert files(directory) == synthetic.objects
    export(directory)
    assert state_files(directory) == modelled(synthetic)


def test_old_batches_stay_restorable_though_their_index_is_lost(tmp_path: Path) -> None:
    synthetic = Synthetic().virtual(25).snapshots(20).purge(until=5)
    hurt = dict(synthetic.objects)
    del hurt[roll_up_object(0)]
    hurt = {n: d for n, d in hurt.items() if n not in {f"commits/{b}" for b in range(10)}}
    directory = lay_out(tmp_path, hurt)
    export(directory, "--remove-log")
    assert state_files(directory) == modelled(synthetic)


def test_export_reads_and_writes_s3(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in moto.env.items():
        monkeypatch.setenv(name, value)
    synthetic = Synthetic().virtual(12)
    with closing(moto.client()) as client:
        for name, data in synthetic.objects.items():
            client.put_object(Bucket=moto.bucket, Key=f"spark-export/{name}", Body=data)
        result = tidelog("spark", "export", f"s3a://{moto.bucket}/spark-export", "--remove-log")
        assert result.exit_code == 0, result.output
        listing = client.list_objects_v2(Bucket=moto.bucket, Prefix="spark-export/")
        found = {entry["Key"].removeprefix("spark-export/") for entry in listing["Contents"]}
    assert found == Synthetic().stock(12).objects.keys()
