"""`tidelog verify`: every checkpoint restored and checked."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import click

from tidelog.checkpoint.finding import Finding
from tidelog.cli.exit_codes import EXIT_OK, EXIT_PROBLEM
from tidelog.cli.options import option, options_of
from tidelog.cli.output import Output, Rows, fields_of, finding_lines, some
from tidelog.cli.spark.engine import EngineOptions, open_engine
from tidelog.cli.store.options import StoreCommand, on_store_for_a_verdict
from tidelog.options.units import plural
from tidelog.spark.checkpoint.checkpoint import find_layout, store_url
from tidelog.verify.results import Choice
from tidelog.verify.verification import CheckpointReport, VerifyReport, verify

_KINDS: Final = {"job": "checkpoint", "query": "batch"}
_LAYOUTS: Final = {"job": "tidelog", "query": "spark"}


def _choice(text: str) -> Choice:
    """A checkpoint's number, or a word."""
    return int(text) if text.isdecimal() else text


@click.command("verify")
@partial(on_store_for_a_verdict, location=store_url)  # as Spark writes it
@option(
    "--checkpoint",
    "chosen",
    type=_choice,
    metavar="N",
    default="all",
    help="One checkpoint: its number (of a Spark query: its batch), the name of a savepoint, or "
    "latest.",
)
@options_of("engine", EngineOptions)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="--engine local: processes; by default as needed."
)
@click.option(
    "--work-dir",
    metavar="DIR",
    help="Where partitions are restored; by default the system's temporary directory.",
)
async def command(
    invocation: StoreCommand,
    chosen: Choice,
    engine: EngineOptions,
    jobs: int | None,
    work_dir: str | None,
) -> int:
    """Restore every checkpoint at URL, check every byte, row and object; nothing is written.

    URL is a store of tidelog, or the checkpoint of a Spark query. Where retained checkpoints
    allow it, each partition is also restored from the materialization before, and both must
    agree. Exits with 0 only if every checkpoint can be restored and nothing is wrong, with 4 when
    the store could not be read.
    """
    await find_layout(invocation.store)  # Spark takes some seconds to start
    engine_context = open_engine(invocation, "tidelog verify", engine, jobs=jobs, work_dir=work_dir)
    with engine_context as chosen_engine, invocation.output.progress("verifying") as progress:
        report = await verify(invocation.store, chosen_engine, chosen=chosen, progress=progress)
    _show(invocation.output, report)
    return EXIT_OK if report.passed else EXIT_PROBLEM


def _show(output: Output, report: VerifyReport) -> None:
    """Print the report; its JSON is in docs/reference/cli-json.md."""
    problems = [replace(problem, action=_action(report, problem)) for problem in report.problems]
    document = {
        "url": report.url,
        "layout": _LAYOUTS[report.layout],
        "engine": report.engine,
        "passed": report.passed,
        "newest_sound": report.newest_sound,
        "checkpoints": [_checkpoint(checkpoint) for checkpoint in report.checkpoints],
        "problems": [fields_of(problem, "newer_format") for problem in problems],
        "not_checked": [
            {"partition": partition, "reason": reason, "checkpoints": checkpoints}
            for partition, reason, checkpoints in report.unchecked
        ],
        "not_looked_at": [{"object": name, "reason": reason} for name, reason in report.unseen],
    }
    kind = _KINDS[report.layout]
    checkpoints = Rows(
        report.checkpoints,
        (kind, lambda checkpoint: checkpoint.checkpoint),
        ("verdict", _verdict),
        *("partitions", "rows", "changes"),
        ("restored in two ways", _two_ways),
    )
    lines: list[str] = []
    for problem in problems:
        lines += finding_lines(problem, kind)
    output.show(document, checkpoints, *lines, *_reasons(report), "", _summary(report))


def _checkpoint(checkpoint: CheckpointReport) -> dict[str, Any]:
    redundancy = {key: getattr(checkpoint, key) for key in ("equal", "different", "unchecked")}
    return {**fields_of(checkpoint, *redundancy), "redundancy": redundancy}


def _action(report: VerifyReport, problem: Finding) -> str:
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
            f"`tidelog verify {report.url}`, without --checkpoint"
        )
    if newest is None:
        return "bring the object back from a backup; no other checkpoint is sound"
    restore = f"use batch {newest}"
    if report.layout == "job":
        restore = f"restore checkpoint {newest} (`tidelog run ... --restore-checkpoint {newest}`)"
    return f"bring the object back from a backup, or {restore}"


def _verdict(checkpoint: CheckpointReport) -> str:
    verdict = checkpoint.verdict
    return verdict.upper() if verdict in {"unusable", "doubtful"} else verdict


def _two_ways(checkpoint: CheckpointReport) -> str:
    different = f", {checkpoint.different} DIFFER" if checkpoint.different else ""
    return f"{checkpoint.equal} of {checkpoint.partitions}{different}"


def _reasons(report: VerifyReport) -> Iterator[str]:
    partitions: dict[str, list[str]] = defaultdict(list)
    for partition, reason, _ in report.unchecked:
        partitions[reason].append(partition)
    for reason, names in partitions.items():
        yield from ("", f"not checked in two ways: {reason}: {some(names)}")
    objects: dict[str, list[str]] = defaultdict(list)
    for name, reason in report.unseen:
        objects[reason].append(name)
    for reason, names in objects.items():
        yield from ("", f"damage may not be found: {reason}: {some(names)}")


def _summary(report: VerifyReport) -> str:
    verdicts = [checkpoint.verdict for checkpoint in report.checkpoints]
    sound = f"{verdicts.count('sound')} of {plural(len(verdicts), 'checkpoint')} sound"
    dropped = f", {verdicts.count('gone')} were dropped meanwhile" if "gone" in verdicts else ""
    if "expired" in verdicts:
        dropped += f", Spark has cleaned up {verdicts.count('expired')}"
    newest = f"; the newest is {report.newest_sound}" if report.newest_sound is not None else ""
    problems = plural(len(report.problems), "problem")
    return f"{'passed' if report.passed else 'FAILED'}: {sound}{dropped}{newest}; {problems}"
