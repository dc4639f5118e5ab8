"""Headline: the first figures of a replay cannot be taken for more than they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

import bftrain
from bftrain import EventLog, ReplaySettings
from bftrain_datasets.log.provenance import DoubtfulTime, LogFinding, LogProvenance
from tests.unit.replay.cases import START_S, ReplayOutcome, figures_of, log_of, page_of, task, text_of

LOG = log_of((0.0, "ab", ""), end_s=7200.0)  # four idle node-hours


def test_a_run_whose_tasks_ran_out_does_not_lead_with_u() -> None:
    # One task on one node takes 720 s, so 0.2 of 4 idle node-hours are all that it needs
    done = bftrain.replay(LOG, [task(rate=(10.0,), work_samples=7200.0)], ReplaySettings())
    found = done.headline
    assert (found.tasks_ran_out, found.efficiency) == (True, 1.0)
    assert found.used_share == pytest.approx(0.05)
    assert found.no_task_share == pytest.approx(0.9)  # the second node was left while the task was full
    assert found.harvest_node_h == pytest.approx(0.2)
    assert found.sentence == (
        "The tasks ran out: they needed 5.0 % of 4 idle node-hours; harvest 0.2 node-hours, 7,200 samples. "
        "U is not comparable then; for enough work replay without --tasks"
    )


def test_a_run_with_enough_work_says_harvest_shares_and_u() -> None:
    done = bftrain.replay(LOG, [task(rate=(10.0, 20.0), start_cost_s=720.0)], ReplaySettings(horizon_s=7200.0))
    found = done.headline
    assert (found.tasks_ran_out, found.no_task_share, found.used_share) == (False, 0.0, 1.0)
    assert found.harvest_node_h == pytest.approx(3.6)
    assert found.harvest_share == pytest.approx(0.9)
    assert found.sentence == "Harvest: 3.6 of 4 idle node-hours (90.0 %), 129,600 samples; U 90.0 %"


@pytest.mark.parametrize(
    ("end_s", "ending"),
    [
        (6000.0, "; U 78.0 % of what 2 nodes would do; 1.8 were idle on average"),  # 3 idle node-hours in 6,000 s
        (5500.0, "; U 84.9 %"),  # 1.96 on average: the two that U compares with
    ],
)
def test_the_headline_says_what_u_compares_with_where_rounding_the_pool_moves_it(end_s: float, ending: str) -> None:
    log = log_of((0.0, "ab", ""), (4800.0 if end_s == 6000.0 else 5280.0, "", "b"), end_s=end_s)
    done = bftrain.replay(log, [task(rate=(10.0, 20.0), start_cost_s=720.0)], ReplaySettings(horizon_s=7200.0))
    assert done.headline.sentence.endswith(ending)


def test_the_headline_of_an_interrupted_replay_says_first_how_far_it_came() -> None:
    def stopping(wanted: str, at_s: float) -> ReplayOutcome:
        def going(name: str, simulated_s: float, _decisions: int) -> bool:
            return name != wanted or simulated_s < at_s

        log = log_of((0.0, "ab", ""), (3600.0, "", "b"), end_s=7200.0)
        return bftrain.replay(log, [task()], ReplaySettings(), watch=going)

    for done, begin in (
        (stopping("exact", 3600.0), "Interrupted after 60 min of 2 h. "),
        (stopping("without costs", 0.0), "Interrupted before the dedicated pool was replayed, so U is not known. "),
    ):
        assert done.summary["headline"]["sentence"].startswith(f"{begin}Harvest: ")
        assert f"{begin}The batch queue left " in text_of(page_of(done))
    whole = bftrain.replay(LOG, [task()], ReplaySettings())
    assert whole.headline is not None
    assert whole.headline.sentence.startswith("Harvest: ")


def test_tasks_that_come_late_leave_time_without_any() -> None:
    late = bftrain.replay(LOG, [task(rate=(10.0, 20.0), submit_s=3600.0)], ReplaySettings())
    found = late.headline
    assert (found.tasks_ran_out, found.no_task_share) == (True, 0.5)


def test_nothing_idle_is_no_lack_of_tasks() -> None:
    found = bftrain.replay(log_of(end_s=100.0), [task()], ReplaySettings()).headline
    assert (found.tasks_ran_out, found.harvest_share) == (False, None)
    assert found.sentence == "No node was idle"


def doubtful_log(*findings: LogFinding) -> EventLog:
    """Two nodes, of which one is doubtful in the second of two hours."""
    found = DoubtfulTime(cause="censored_end", of_nodes=2, times=(START_S + 3600.0,), nodes=(1,))
    return replace(LOG, provenance=LogProvenance(made_by="reader sacct", doubtful=(found,), findings=findings))


def test_doubts_about_the_log_are_a_part_of_the_headline_and_a_band_of_the_page() -> None:
    done = bftrain.replay(doubtful_log(), [task()], ReplaySettings())
    summary = done.summary
    assert summary["doubtful"]["causes"] == {"censored_end": 1.0}
    assert summary["headline"]["doubtful_share"] == 0.25
    sentence = (
        "4 idle node-hours, of which 3 are sure; 1 doubtful: 1 after the last recorded jobs: later jobs may be missing"
    )
    assert summary["headline"]["caveats"] == (sentence,)
    page = page_of(done)
    assert "The batch queue left 4 node-hours idle, 100.0 % of all (25.0 % of it doubtful);" in text_of(page)
    assert f"4 node-hours were idle{sentence[17:]}." in text_of(page)
    assert "25.0 % of it doubtful" in text_of(page)
    assert "Of the idle node-time 25.0 % is doubtful." in figures_of(page)["nodes"]["spec"]["description"]


def test_doubts_of_an_interrupted_replay_are_those_of_the_time_that_it_covers() -> None:
    changed = replace(log_of((0.0, "ab", ""), (3600.0, "", "b"), end_s=7200.0), provenance=doubtful_log().provenance)
    done = bftrain.replay(
        changed, [task()], ReplaySettings(), watch=lambda name, at_s, _: name != "exact" or at_s < 3600.0
    )
    assert not done.complete
    found = done.summary
    assert (found["doubtful"]["idle_node_h"], found["doubtful"]["causes"]) == (found["idle_node_h"], {})


def test_a_simulated_log_is_called_so_and_not_the_batch_queue() -> None:
    done = bftrain.replay(doubtful_log(LogFinding(name="derived", count=2)), [task()], ReplaySettings())
    summary = done.summary
    assert (summary["doubtful"]["source"], summary["doubtful"]["share"]) == ("simulated", 1.0)
    page = page_of(done)
    text = text_of(page)
    assert "A simulated schedule left 4 node-hours idle, 100.0 % of all (100.0 % of it doubtful);" in text
    assert "4 node-hours were idle, none certain: " in text
    assert "no record tells which nodes were idle in a simulated schedule." in text
    assert "2 nodes in a simulated schedule for" in text
    assert page.count("the simulated scheduler") >= 2
    assert "batch queue" not in page.lower()
    counted = bftrain.replay(doubtful_log(LogFinding(name="which_unknown", count=2)), [task()], ReplaySettings())
    text = text_of(page_of(counted))
    assert "By counts of busy nodes the batch queue left" in text
    assert "2 nodes derived from counts for" in text


def test_a_log_out_of_records_without_doubts_has_no_caveat() -> None:
    summary = bftrain.replay(LOG, [task()], ReplaySettings()).summary
    assert summary["headline"]["caveats"] == ()
    assert summary["doubtful"]["source"] == "records"
