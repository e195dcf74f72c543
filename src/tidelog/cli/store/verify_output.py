"""What `tidelog verify` prints: a table and the problems, or one JSON document."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from tidelog.checkpoint.finding import Finding
from tidelog.cli.output import Output, Rows, fields_of
from tidelog.verify.report import CheckpointReport, VerifyReport

_SHOWN: Final = 5
_KINDS: Final = {"job": "slot", "query": "batch"}
_LAYOUTS: Final = {"job": "tidelog", "query": "spark"}


def show(output: Output, report: VerifyReport) -> None:
    """Print the report; its JSON is in docs/reference/cli-json.md."""
    problems = [
        {**fields_of(problem, "newer_format"), "action": _action(report, problem)}
        for problem in report.problems
    ]
    document = {
        "url": report.url,
        "layout": _LAYOUTS[report.layout],
        "engine": report.engine,
        "passed": report.passed,
        "newest_sound": report.newest_sound,
        "checkpoints": [_checkpoint(each) for each in report.checkpoints],
        "problems": problems,
        "not_checked": [
            {"partition": partition, "reason": reason, "checkpoints": checkpoints}
            for partition, reason, checkpoints in report.unchecked
        ],
    }
    kind = _KINDS[report.layout]
    checkpoints = Rows(
        report.checkpoints,
        (kind, lambda each: each.checkpoint),
        ("verdict", _verdict),
        *("partitions", "rows", "changes"),
        ("restored in two ways", _two_ways),
    )
    shown = [line for problem in problems for line in _problem_lines(problem, kind)]
    output.show(document, checkpoints, *shown, *_reasons(report), "", _summary(report))


def _checkpoint(checkpoint: CheckpointReport) -> dict[str, Any]:
    redundancy = {key: getattr(checkpoint, key) for key in ("equal", "different", "unchecked")}
    return {**fields_of(checkpoint, *redundancy), "redundancy": redundancy}


def _action(report: VerifyReport, problem: Finding) -> str:
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


def _verdict(checkpoint: CheckpointReport) -> str:
    verdict = checkpoint.verdict
    return verdict.upper() if verdict in {"unusable", "doubtful"} else verdict


def _two_ways(checkpoint: CheckpointReport) -> str:
    different = f", {checkpoint.different} DIFFER" if checkpoint.different else ""
    return f"{checkpoint.equal} of {checkpoint.partitions}{different}"


def _problem_lines(problem: dict[str, Any], kind: str) -> Iterator[str]:
    yield ""
    yield f"{problem['where']} ({problem['check']})"
    yield f"  expected {problem['expected']}; found {problem['found']}"
    if problem["partitions"]:
        yield f"  partition: {_some(problem['partitions'])}"
    for effect in ("unusable", "doubtful"):
        if problem[effect]:
            yield f"  makes {effect}: {kind} {_some(problem[effect])}"
    yield f"  next: {problem['action']}"


def _reasons(report: VerifyReport) -> Iterator[str]:
    partitions: dict[str, list[str]] = defaultdict(list)
    for partition, reason, _ in report.unchecked:
        partitions[reason].append(partition)
    for reason, found in partitions.items():
        yield from ("", f"not checked in two ways: {reason}: {_some(found)}")


def _summary(report: VerifyReport) -> str:
    verdicts = [checkpoint.verdict for checkpoint in report.checkpoints]
    sound = f"{verdicts.count('sound')} of {len(verdicts)} checkpoints are sound"
    gone = f", {verdicts.count('gone')} were dropped meanwhile" if "gone" in verdicts else ""
    if "expired" in verdicts:
        gone += f", Spark has cleaned up {verdicts.count('expired')}"
    newest = f"; the newest is {report.newest_sound}" if report.newest_sound is not None else ""
    problems = f"{len(report.problems)} problems"
    return f"{'passed' if report.passed else 'FAILED'}: {sound}{gone}{newest}; {problems}"


def _some(items: list[Any]) -> str:
    """A few of them; the JSON has all."""
    shown = ", ".join(map(str, items[:_SHOWN]))
    return f"{shown} and {len(items) - _SHOWN} more" if len(items) > _SHOWN else shown
