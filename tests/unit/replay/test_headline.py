"""Headline: the first figures of a replay cannot be taken for more than they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as struct_replace

from bftrain import EventLog, ReplaySettings
from bftrain_datasets.log.provenance import DoubtfulTime, LogFinding, LogProvenance
from bftrain_replay.output import summary_json
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report, report_data
from bftrain_replay.reporting.headline_section import compared, notices
from bftrain_replay.results.headline import NO_BOUND, efficiency_text, headline_of, summary_ran_out
from bftrain_replay.simulation.fixed_cluster import FixedCluster
from bftrain_replay.study import ReplayStudy, cluster_study, study
from tests.unit.replay.cases import START_S, log_of, task

LOG = log_of((0.0, "ab", ""), end_s=7200.0)  # four idle node-hours


def test_a_run_whose_tasks_ran_out_does_not_lead_with_u() -> None:
    # One task on one node takes 720 s, so 0.2 of 4 idle node-hours are all that it needs
    done = study(LOG, [task(rate=(10.0,), work_samples=7200.0)], ReplaySettings())
    found = headline_of(done.result.summary())
    assert (found.tasks_ran_out, found.efficiency) == (True, 1.0)
    assert found.used_share == pytest.approx(0.05)
    assert found.no_task_share == pytest.approx(0.9)  # the second node was left while the task was full
    assert found.harvest_node_h == pytest.approx(0.2)
    assert found.sentence == (
        "The tasks ran out: they needed 5.0 % of 4 idle node-hours; harvest 0.2 node-hours, 7,200 samples. "
        "U says nothing then; for enough work replay without --tasks"
    )


def test_a_run_with_enough_work_says_harvest_shares_and_u() -> None:
    done = study(LOG, [task(rate=(10.0, 20.0), start_cost_s=720.0)], ReplaySettings(horizon_s=7200.0))
    found = headline_of(done.result.summary())
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
    done = study(log, [task(rate=(10.0, 20.0), start_cost_s=720.0)], ReplaySettings(horizon_s=7200.0))
    assert headline_of(done.result.summary()).sentence.endswith(ending)


def test_the_headline_of_an_interrupted_replay_says_first_how_far_it_came() -> None:
    def stopping(wanted: str, at_s: float) -> ReplayStudy:
        def going(name: str, simulated_s: float, _decisions: int) -> bool:
            return name != wanted or simulated_s < at_s

        log = log_of((0.0, "ab", ""), (3600.0, "", "b"), end_s=7200.0)
        return study(log, [task()], ReplaySettings(), watch=going)

    for done, begin in (
        (stopping("exact", 3600.0), "Interrupted after 60 min of 2 h. "),
        (stopping("without costs", 0.0), "Interrupted before the dedicated pool was replayed, so U is not known. "),
    ):
        assert summary_json.summary(done, InputSource())["headline"]["sentence"].startswith(f"{begin}Harvest: ")
        page = report.page(report_data.of_study(done, InputSource()))
        assert page.lead.startswith(f"<strong>{begin.strip()}</strong> The batch queue left ")
    whole = study(LOG, [task()], ReplaySettings())
    assert whole.headline is not None
    assert whole.headline.sentence.startswith("Harvest: ")


def test_what_is_assumed_of_progress_is_a_part_of_it() -> None:
    said = {
        "memory": "Assumed: progress is kept in memory, and on disk every 60 s (--progress memory)",
        "disk:300": "Assumed: progress is kept on disk every 5 min (--progress disk:300)",
        "task": "Assumed: a preemption takes what the task says (--progress task)",
    }
    for progress, assumed in said.items():
        done = study(LOG, [task()], ReplaySettings(progress=progress))
        assert summary_json.summary(done, InputSource())["headline"]["assumed"] == assumed
    published = study(LOG, [task()], ReplaySettings(semantics="published"))
    assert summary_json.summary(published, InputSource())["headline"]["assumed"].endswith("(--semantics published)")


def test_a_replay_in_which_no_task_ran_says_so() -> None:
    wide = task(rate=(1.0, 2.0, 3.0), min_nodes=3)
    lead = report.page(report_data.of_study(study(LOG, [wide], ReplaySettings()), InputSource())).lead
    assert "<strong>No task held any of it.</strong>" in lead


def test_tasks_that_come_late_leave_time_without_any() -> None:
    late = study(LOG, [task(rate=(10.0, 20.0), submit_s=3600.0)], ReplaySettings())
    found = headline_of(late.result.summary())
    assert (found.tasks_ran_out, found.no_task_share) == (True, 0.5)


def test_nothing_idle_is_no_lack_of_tasks() -> None:
    found = headline_of(study(log_of(end_s=100.0), [task()], ReplaySettings()).result.summary())
    assert (found.tasks_ran_out, found.harvest_share) == (False, None)
    assert found.sentence == "No node was idle: there was nothing to harvest"


def test_the_summary_holds_it_and_its_sum_does_not() -> None:
    done = study(LOG, [task(rate=(10.0,), work_samples=7200.0)], ReplaySettings())
    summary = summary_json.summary(done, InputSource())
    assert summary["headline"]["tasks_ran_out"] is True
    assert summary["headline"]["sentence"].startswith("The tasks ran out: they needed 5.0 %")
    assert summary_ran_out(summary)
    assert efficiency_text(summary) == "100.0 % (tasks ran out)"


def test_a_cluster_has_none_since_its_nodes_are_no_find() -> None:
    done = cluster_study(FixedCluster(nodes={"": 2}), [task(work_samples=100.0)], ReplaySettings())
    summary = summary_json.summary(done, InputSource())
    assert (summary["headline"], summary_ran_out(summary)) == (None, False)


def test_the_page_begins_with_it_and_shows_no_bare_u() -> None:
    few = study(LOG, [task(rate=(10.0,), work_samples=7200.0)], ReplaySettings())
    page = report.page(report_data.of_study(few, InputSource()))
    assert "<strong>The tasks ran out</strong>: they needed <strong>5.0 %</strong> of it" in page.lead
    (card,) = [card for card in page.cards if card.name == "Efficiency U"]
    assert (card.figure, "100" in card.note) == ("tasks ran out", False)
    rows = dict(row[:2] for row in compared(report_data.of_study(few, InputSource())).rows)
    assert rows["efficiency U"] == "100.0 % (tasks ran out)"
    enough = study(LOG, [task()], ReplaySettings())
    assert "ran out" not in report.render(report_data.of_study(enough, InputSource())).split("<script")[0]


def doubtful_log(*findings: LogFinding) -> EventLog:
    """Two nodes, of which one is doubtful in the second of two hours."""
    found = DoubtfulTime(cause="censored_end", of_nodes=2, times=(START_S + 3600.0,), nodes=(1,))
    return replace(LOG, provenance=LogProvenance(made_by="reader sacct", doubtful=(found,), findings=findings))


def test_doubts_about_the_log_are_a_part_of_the_headline_and_a_band_of_the_page() -> None:
    done = study(doubtful_log(), [task()], ReplaySettings())
    summary = summary_json.summary(done, InputSource())
    assert summary["doubtful"]["causes"] == {"censored_end": 1.0}
    assert summary["headline"]["doubtful_share"] == 0.25
    sentence = (
        "4 idle node-hours, of which 3 are sure; 1 doubtful: 1 after the last recorded jobs, as jobs that ended later "
        "may be missing"
    )
    assert summary["headline"]["caveats"] == (sentence,)
    page = report.page(report_data.of_study(done, InputSource()))
    assert page.lead.startswith(
        f"The batch queue left <strong>4 node-hours</strong> idle, 100.0 % of all{sentence[17:]}."
    )
    assert "25.0 % of it doubtful" in page.cards[0].note
    (nodes,) = [figure for figure in page.figures if figure.name == "nodes"]
    assert nodes.series[0].columns["doubtful"].tolist() == [0.0, 1.0]
    assert "Of the idle node-time 25.0 % is doubtful." in nodes.says


def test_doubts_are_those_of_the_window_that_is_replayed() -> None:
    early = study(doubtful_log(), [task()], ReplaySettings(window=f"..{START_S + 3600.0}"))
    assert summary_json.summary(early, InputSource())["doubtful"]["causes"] == {}
    late = study(doubtful_log(), [task()], ReplaySettings(window=f"{START_S + 3600.0}.."))
    assert summary_json.summary(late, InputSource())["doubtful"]["share"] == 0.5


def test_doubts_of_an_interrupted_replay_are_those_of_the_time_that_it_covers() -> None:
    changed = replace(log_of((0.0, "ab", ""), (3600.0, "", "b"), end_s=7200.0), provenance=doubtful_log().provenance)
    done = study(changed, [task()], ReplaySettings(), watch=lambda name, at_s, _: name != "exact" or at_s < 3600.0)
    assert not done.complete
    found = summary_json.summary(done, InputSource())
    assert (found["doubtful"]["idle_node_h"], found["doubtful"]["causes"]) == (found["idle_node_h"], {})


def test_a_simulated_log_is_called_so_and_not_the_batch_queue() -> None:
    done = study(doubtful_log(LogFinding(name="derived", count=2)), [task()], ReplaySettings())
    summary = summary_json.summary(done, InputSource())
    assert (summary["doubtful"]["source"], summary["doubtful"]["share"]) == ("simulated", 1.0)
    page = report.page(report_data.of_study(done, InputSource()))
    assert page.lead.startswith(
        "A simulated schedule left <strong>4 node-hours</strong> idle, 100.0 % of all, of which none is sure: "
    )
    assert "no record tells which nodes were idle in a simulated schedule." in page.lead
    assert page.subtitle.startswith("2 nodes in a simulated schedule for")
    text = report.render(report_data.of_study(done, InputSource()))
    assert text.count("the simulated scheduler") >= 2
    assert "batch queue" not in text.lower()
    counted = study(doubtful_log(LogFinding(name="which_unknown", count=2)), [task()], ReplaySettings())
    page = report.page(report_data.of_study(counted, InputSource()))
    assert page.lead.startswith("By counts of busy nodes the batch queue left")
    assert page.subtitle.startswith("2 nodes derived from counts for")


def test_a_log_out_of_records_without_doubts_has_no_caveat() -> None:
    summary = summary_json.summary(study(LOG, [task()], ReplaySettings()), InputSource())
    assert summary["headline"]["caveats"] == ()
    assert summary["doubtful"]["source"] == "records"


def test_u_above_100_per_cent_is_explained_on_the_terminal_and_the_page() -> None:
    done = study(LOG, [task(rate=(10.0, 20.0), start_cost_s=720.0)], ReplaySettings(horizon_s=7200.0))
    odd = struct_replace(done.result.summary(), efficiency=1.044, ceiling_efficiency=1.133)
    assert headline_of(odd).caveats == (NO_BOUND,)
    data = report_data.of_study(done, InputSource())
    assert efficiency_text({**data.summary, "efficiency": 1.044}) == "104.4 % (no bound)"
    above = struct_replace(data, summary={**data.summary, "efficiency": 1.044})
    assert [f"{NO_BOUND}." in notices(each) for each in (data, above)] == [False, True]
