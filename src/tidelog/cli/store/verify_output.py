"""What `tidelog verify` prints: a table and the problems, or one JSON document."""

from collections import defaultdict
from typing import Any, Final

from tidelog.checkpoint.finding import Finding
from tidelog.cli.output import Cell, Output, fields_of
from tidelog.verify.report import CheckpointReport, Report

_SHOWN: Final = 5
_KINDS: Final = {"job": "slot", "query": "batch"}
_LAYOUTS: Final = {"job": "tidelog", "query": "spark"}


def fields(report: Report) -> dict[str, Any]:
    """The report as JSON; see docs/reference/cli-json.md."""
    return {
        "url": report.url,
        "layout": _LAYOUTS[report.layout],
        "engine": report.engine,
        "passed": report.passed,
        "newest_sound": report.newest_sound,
        "checkpoints": [_checkpoint(each) for each in report.checkpoints],
        "problems": [_problem(report, problem) for problem in report.problems],
        "not_checked": [
            {"partition": partition, "reason": reason, "checkpoints": checkpoints}
            for partition, reason, checkpoints in report.unchecked
        ],
    }


def _checkpoint(checkpoint: CheckpointReport) -> dict[str, Any]:
    redundancy = {key: getattr(checkpoint, key) for key in ("equal", "different", "unchecked")}
    return {**fields_of(checkpoint, *redundancy), "redundancy": redundancy}


def _problem(report: Report, problem: Finding) -> dict[str, Any]:
    return {**fields_of(problem, "newer_format"), "action": action(report, problem)}


def action(report: Report, problem: Finding) -> str:
    """What to do next."""
    if problem.newer_format:
        return "use the tidelog release that wrote it, or a newer one"
    if problem.action is not None:
        return problem.action
    if not problem.checkpoints:
        return (
            "every checkpoint works without it; find out what else writes or deletes objects "
            "under this URL"
        )
    newest = report.newest_sound
    if newest is None and not report.all_seen:
        return (
            "bring the object back from a backup, or look for a sound checkpoint among the others: "
            f"`tidelog verify {report.url}`, without --slot"
        )
    if newest is None:
        return "bring the object back from a backup; no other checkpoint is sound"
    restore = f"restore slot {newest}" if report.layout == "job" else f"use batch {newest}"
    return f"bring the object back from a backup, or {restore}"


def show(output: Output, report: Report) -> None:
    """Print the report for people."""
    kind = _KINDS[report.layout]
    output.table(
        [kind, "verdict", "partitions", "rows", "changes", "restored in two ways"],
        [_cells(each) for each in report.checkpoints],
    )
    for problem in report.problems:
        _show_problem(output, report, problem, kind)
    _show_reasons(output, report)
    output.line()
    output.line(_summary(report))


def _cells(checkpoint: CheckpointReport) -> list[Cell]:
    verdict = checkpoint.verdict
    different = f", {checkpoint.different} DIFFER" if checkpoint.different else ""
    return [
        checkpoint.checkpoint,
        verdict.upper() if verdict in {"unusable", "doubtful"} else verdict,
        checkpoint.partitions,
        checkpoint.rows,
        checkpoint.changes,
        f"{checkpoint.equal} of {checkpoint.partitions}{different}",
    ]


def _show_problem(output: Output, report: Report, problem: Finding, kind: str) -> None:
    output.line()
    output.line(f"{problem.where} ({problem.check})")
    output.line(f"  expected {problem.expected}; found {problem.found}")
    if problem.partitions:
        output.line(f"  partition: {_some(problem.partitions)}")
    if problem.unusable:
        output.line(f"  makes unusable: {kind} {_some(problem.unusable)}")
    if problem.doubtful:
        output.line(f"  makes doubtful: {kind} {_some(problem.doubtful)}")
    output.line(f"  next: {action(report, problem)}")


def _show_reasons(output: Output, report: Report) -> None:
    partitions: dict[str, list[str]] = defaultdict(list)
    for partition, reason, _ in report.unchecked:
        partitions[reason].append(partition)
    for reason, found in partitions.items():
        output.line()
        output.line(f"not checked in two ways: {reason}: {_some(found)}")


def _summary(report: Report) -> str:
    verdicts = [checkpoint.verdict for checkpoint in report.checkpoints]
    sound = f"{verdicts.count('sound')} of {len(verdicts)} checkpoints are sound"
    gone = f", {verdicts.count('gone')} were dropped meanwhile" if "gone" in verdicts else ""
    if "expired" in verdicts:
        gone += f", Spark has cleaned up {verdicts.count('expired')}"
    newest = f"; the newest is {report.newest_sound}" if report.newest_sound is not None else ""
    problems = f"{len(report.problems)} problems"
    return f"{'passed' if report.passed else 'FAILED'}: {sound}{gone}{newest}; {problems}"


def _some(items: "tuple[int, ...] | tuple[str, ...] | list[str]") -> str:
    """A few of them; the JSON has all."""
    shown = ", ".join(map(str, items[:_SHOWN]))
    return f"{shown} and {len(items) - _SHOWN} more" if len(items) > _SHOWN else shown
