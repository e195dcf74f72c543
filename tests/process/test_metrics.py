"""`tidelog run` with its metrics served and exported: over real sockets, and wrong options."""

import socket
from pathlib import Path

from tests.process.harness import Run
from tests.support.cli import tidelog
from tests.support.collector import collector


def write_lines(run: Run) -> None:
    (run.input / "lines.txt").write_text("tide log tide\n" * 100)


def test_a_run_exports_what_it_read_to_its_last_record(tmp_path: Path) -> None:
    with collector() as there:
        run = Run(tmp_path, "wordcount", ("--otel-endpoint", there.url))
        write_lines(run)
        run.finish_here()
    read = there.metrics()["tidelog_records_read"].sum.data_points
    assert [(point.as_int, point.attributes[0].value.string_value) for point in read] == [
        (100, "wordcount")
    ]


def test_the_variables_alone_export_nothing_without_the_option(tmp_path: Path) -> None:
    with collector() as there:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": there.url}
        run = Run(tmp_path, "wordcount", env=variables)
        write_lines(run)
        run.finish_here()
        assert there.exports == []
        again = Run(tmp_path / "again", "wordcount", ("--otel",), env=variables)
        write_lines(again)
        again.finish_here()
        assert "tidelog_records_read" in there.metrics()


def test_a_run_whose_collector_is_not_there_finishes_and_says_so(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run = Run(tmp_path, "wordcount", ("--otel-endpoint", f"http://127.0.0.1:{port}"))
    write_lines(run)
    finished = run.finish_here()
    assert {record["word"]: record["count"] for record in run.records()} == {
        "tide": 200,
        "log": 100,
    }
    assert finished.stderr.count("metrics do not reach") == 1
    assert "Connection refused" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_metrics_port_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = Run(tmp_path, "wordcount", ("--metrics-port", str(port)))
        refused = tidelog(*run.command[3:])
    assert refused.exit_code == 2
    assert f"metrics port {port}; expected a free port; found Address already in use" in (
        refused.stderr
    )
    assert not Path(run.store).exists()
