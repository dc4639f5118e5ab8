"""The page: self-contained, escaped, described for those who cannot see it; and the arithmetic of its charts."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from bftrain.config import Settings
from bftrain_replay import comparison, words
from bftrain_replay.charts import Bar, Curve, average, bars, nice_marks, step_areas, time_marks
from bftrain_replay.report import TASKS_SHOWN, render
from bftrain_replay.settings import ReplaySettings
from bftrain_replay.study import study
from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), (120.0, "cd", ""), end_s=7200.0, start_s=1.6e9)
EVIL = "<script>alert('x')</script>&\"'"
VOID = {"meta", "line", "rect", "path"}


class Checker(HTMLParser):
    """Checks that every element is closed, and collects elements and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def page_of(*tasks: str, measured: bool = True) -> str:
    done = study(LOG, [task(name, work_samples=5e3) for name in tasks], Settings(), baseline="equal-share")
    return render(done, title=EVIL, measured=measured)


def test_a_log_that_no_calendar_holds_has_its_page() -> None:
    far = log_of((0.0, "ab", ""), end_s=60.0, start_s=1e13)
    assert "from 1e+13 s" in read(render(study(far, [task("a")], Settings()))).text


def test_a_page_of_well_formed_html_with_the_figures_in_it() -> None:
    page = read(page_of("one", "two"))
    for text in (
        "equal-share",
        "ceiling (no costs)",
        "2020-09-13 12:26:40 UTC",
        "Every task finished",
        "one",
        "max_tasks",
    ):
        assert text in page.text, text


def test_what_strangers_wrote_is_text_and_never_markup() -> None:
    page = page_of(EVIL)
    assert "<script" not in page
    assert read(page).text.count(EVIL) >= 2  # the title and the task


def test_nothing_is_fetched_and_nothing_is_run() -> None:
    page = page_of("one")
    addresses = re.findall(r"(?:https?:)?//[^\s\"'<)]+", page)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(src|href|url|@import|on\w+)\s*[=(]", page)


def test_every_chart_is_described() -> None:
    charts = [attributes for tag, attributes in read(page_of("one")).found if tag == "svg"]
    assert len(charts) == 6  # two charts at three widths
    for attributes in charts:
        assert attributes["role"] == "img"
        assert re.search(r"\d", attributes["aria-label"] or "")


def test_decision_times_can_be_left_out() -> None:
    assert "decision time" in page_of("one")
    assert "decision time" not in page_of("one", measured=False)


def test_many_tasks_are_cut_and_the_page_says_so() -> None:
    page = read(page_of(*(f"t{number}" for number in range(TASKS_SHOWN + 1))))
    assert f"The first {TASKS_SHOWN}; all {TASKS_SHOWN + 1} are in the table of tasks." in page.text


def test_the_row_of_a_task_counts_all_its_waits_and_all_its_losses() -> None:
    # It waits for 20 s, does 900 in 90 s, is done at 80 % of that time, and nobody notices before its node leaves
    log = log_of((20.0, "a", ""), (110.0, "", "a"), end_s=7200.0)
    settings = ReplaySettings(semantics="published")
    page = render(study(log, [task("mine", rate=(10.0,), work_samples=720.0)], settings))
    (row,) = re.findall(r"<tr><th scope=\"row\">mine</th>(.*?)</tr>", page)
    cells = re.findall(r"<td>(.*?)</td>", row)
    assert cells == ["finished", "0 s", "20 s", "110 s", "0.025", "100.0&nbsp;%", "20.0&nbsp;%", "1", "0", "1"]
    assert "Lost unnoticed" in page
    assert "Lost to start-up" not in page  # nothing was


@pytest.mark.parametrize("end_s", [0.0, 50.0])
def test_an_empty_log_has_a_page_too(end_s: float) -> None:
    page = read(render(study(log_of(end_s=end_s), [task()], Settings())))
    assert "Where the idle node-time went" in page.text
    assert "nan" not in page.text.lower()


def test_the_table_shows_the_makespan_only_if_there_is_one() -> None:
    def labels(work_samples: float) -> list[str]:
        done = study(LOG, [task(work_samples=work_samples)], Settings())
        return [row[0] for row in comparison.rows(done, measured=False)]

    assert "all tasks finished after" in labels(100.0)
    assert "all tasks finished after" not in labels(1e9)


# -- charts


def curve(times: list[float], values: list[float]) -> Curve:
    return Curve(name="c", css="used", times_s=np.array(times), values=np.array(values))


def test_averaging_keeps_the_area() -> None:
    times = np.cumsum(np.arange(1000) % 7 + 1.0)
    steps = Curve(name="c", css="used", times_s=times, values=np.arange(1000) % 13)
    end_s = float(times[-1]) + 5.0
    edges, values = average(steps, end_s, 50)
    assert (edges.size, values.size) == (51, 50)
    exact = float((steps.values * np.diff(times, append=end_s)).sum())
    assert float((values * np.diff(edges)).sum()) == pytest.approx(exact, rel=1e-12)


def test_few_steps_are_drawn_as_they_are() -> None:
    edges, values = average(curve([0.0, 10.0], [3.0, 1.0]), 30.0, 50)
    assert (edges.tolist(), values.tolist()) == ([0.0, 10.0, 30.0], [3.0, 1.0])


def test_a_step_area_goes_where_its_values_are() -> None:
    drawn = step_areas([curve([0.0, 50.0], [4.0, 0.0])], 100.0, width=262, height=164, alt="a", unit="n")
    # the plot is 200 wide from x = 52, and 100 high from y = 26: four nodes for half the time
    assert 'd="M52.0,26.0V26.0H152.0V126.0H252.0V126.0H52Z"' in drawn


@pytest.mark.parametrize(("highest", "marks"), [(0.0, [0.0, 1.0]), (4.0, [0.0, 1.0, 2.0, 3.0, 4.0])])
def test_marks_of_small_counts(highest: float, marks: list[float]) -> None:
    assert nice_marks(highest) == marks


@pytest.mark.parametrize("highest", [7.0, 99.0, 101.0, 4734.0, 123456.0])
def test_marks_are_few_and_reach_the_top(highest: float) -> None:
    marks = nice_marks(highest)
    assert marks[-1] >= highest > marks[-2]
    assert 3 <= len(marks) <= 6


@pytest.mark.parametrize(
    ("span_s", "unit"),
    [(45.0, "seconds"), (3000.0, "minutes"), (216000.0, "hours"), (1.3e6, "days"), (3.2e7, "days")],
)
def test_time_is_marked_in_a_unit_that_suits_it(span_s: float, unit: str) -> None:
    marks, _, name = time_marks(span_s, 12)
    assert name == unit
    assert 2 <= len(marks) <= 13
    assert marks[-1] <= span_s


def test_bars_are_to_one_scale_and_details_only_where_there_is_room() -> None:
    items = [Bar(name="x", detail="all of it " * 5, value=10.0, words="10", css="used")]
    items.append(Bar(name="y", detail="", value=2.5, words="2.5", css="idle"))
    wide, narrow = (bars(items, width=width, alt="a") for width in (800, 200))
    assert 'class="used" x="0" y="20" width="800.0"' in wide
    assert 'class="idle" x="0" y="60" width="200.0"' in wide
    assert "all of it" in wide
    assert "all of it" not in narrow


# -- words


@pytest.mark.parametrize(
    ("said", "words_for_it"),
    [
        (words.count(1264.53), "1,265"),
        (words.count(21.08), "21.1"),
        (words.count(0.0), "0"),
        (words.large(11.86e9), "11.9 billion"),
        (words.large(130e9), "130 billion"),
        (words.large(950.0), "950"),
        (words.large(999.4e6), "999 million"),
        (words.large(999.6e6), "1.00 billion"),
        (words.large(2.5e18), "2,500 quadrillion"),
        (words.large(-3e9), "-3.00 billion"),
        (words.percent(0.9660), "96.6 %"),
        (words.percent(0.0001), "< 0.1 %"),
        (words.percent(0.0), "0.0 %"),
        (words.percent(None), words.UNKNOWN),
        (words.duration(90.0), "90 s"),
        (words.duration(5400.0), "90 min"),
        (words.duration(90000.0), "25 h"),
        (words.duration(216000.0), "2.5 days"),
        (words.duration(199_000.0), "2.3 days"),
        (words.duration(201_000.0), "2.33 days"),
        (words.duration(3.65e8), "4,225 days"),
        (words.duration(None), words.UNKNOWN),
        (words.milliseconds(0.7512), "0.751 ms"),
        (words.milliseconds(1500.0), "1.5 s"),
        (words.milliseconds(999.7), "1 s"),
        (words.milliseconds(1_234_567.0), "1,230 s"),
        (words.moment(1612915732.5), "2021-02-10 00:08:52 UTC"),
        (words.moment(1e13), "1e+13 s"),
    ],
)
def test_figures_in_words(said: str, words_for_it: str) -> None:
    assert said == words_for_it


def test_the_ceiling_is_not_said_to_be_a_bound() -> None:
    page = read(render(study(LOG, [task(start_cost_s=7.0)], Settings()))).text
    assert "if changes cost nothing" in page
    assert "possible" not in page  # docs/semantics.md: a replay can come out above it
