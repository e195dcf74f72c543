"""A simulation that finds nothing proves nothing: it finds planted defects."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.simulation import canaries
from tests.simulator.checks.violation import Violation
from tests.simulator.run.campaign import run_seed
from tests.simulator.run.scenario import SCENARIOS

SEEDS = range(1_000)
"""A rare defect shows in one of 250 runs; the search ends with the first."""


def first_violation(scenario: str, seeds: Iterable[int], directory: Path) -> Violation | None:
    runs = (run_seed(seed, SCENARIOS[scenario], directory) for seed in seeds)
    return next((run.violation for run in runs if run.violation is not None), None)


@pytest.mark.parametrize(
    ("canary", "scenario", "shown_by"),
    [
        (canaries.log_cut_one_change_too_early, "calm", 0),
        (canaries.commit_before_the_manifest_is_durable, "calm", 0),
        (canaries.barriers_that_hold_nothing_back, "everything", 8),
        (canaries.a_taken_slot_counts_as_won, "zombies", 5),
        (canaries.a_free_name_is_a_slot_won, "zombies", 82),
        (canaries.a_log_that_is_never_cut, "calm", 0),
        (canaries.objects_in_use_are_collected, "store", 1),
        (canaries.an_upload_that_ends_wakes_too_early, "store", 27),
        (canaries.an_exited_source_keeps_its_whole_log, "rules", 64),
        (canaries.a_late_start_removes_what_its_successor_wrote, "held", 86),
        (canaries.splits_that_have_not_begun_hold_nothing_back, "servers", 6),
        (canaries.the_split_that_is_furthest_makes_the_watermark, "servers", 6),
        (canaries.event_times_before_1970_are_late, "servers", 2),
        (canaries.an_input_that_ends_lets_foreign_watermarks_pass, "servers", 17),
        (canaries.only_the_first_split_is_read, "expiry", 8),
        (canaries.key_groups_forget_their_event_time, "latecomers", 10),
        (canaries.what_one_subtask_emits_is_spread, "rules", 0),
        (canaries.a_failed_pre_commit_seals_its_files, "disk", 6),
        (canaries.changed_types_are_taken_in_silence, "evolution", 1),
        (canaries.declared_types_are_not_compared, "evolution", 6),
        (canaries.a_clone_shares_what_it_came_from, "lifecycle", 1),
        (canaries.a_row_that_has_not_arrived_is_absent, "hydration", 6),
        (canaries.a_scan_ends_where_a_row_has_not_arrived, "hydration", 3),
        (canaries.a_savepoint_does_not_look_at_what_it_names, "losses", 1),
    ],
)
def test_a_planted_defect_is_found_within_a_thousand_seeds(
    canary: Callable[[pytest.MonkeyPatch], None],
    scenario: str,
    shown_by: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Of the seeds the one that showed it when this was written is tried first: it saves the search
    for as long as the simulation makes the same run of it.
    """
    canary(monkeypatch)
    violation = first_violation(scenario, (shown_by, *SEEDS), tmp_path)
    assert violation is not None
    assert "TypeError" not in violation.detail, "the canary itself no longer fits the code"
