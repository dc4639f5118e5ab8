"""The main questions of each kind of reader are answered within two clicks of the start page."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.pages import ROOT, links, site_text

DOCS: Final = ROOT / "docs"

# reader -> question -> page, heading of the section, and a word of the answer
QUESTIONS: Final = {
    "operator": {
        "How do I get records out of Slurm?": ("tutorials/from-sacct-to-report.md", "1. Get the records", "sacct"),
        "Which records are understood?": ("reference/readers.md", "Formats", "HTCondor"),
        "How do I settle doubts about records?": (
            "tutorials/from-sacct-to-report.md",
            "3. Settle the doubts",
            "--down",
        ),
        "When does a node count as idle?": ("reference/readers.md", "When a node is idle", "--preemptible"),
        "What do we gain?": ("how-to/assess.md", "What do we gain?", "--node-watts"),
        "What does it cost our users?": ("how-to/assess.md", "What does it cost our users?", "--handback-delay"),
        "How sure is the estimate?": ("how-to/assess.md", "Intervals", "resamples"),
        "Where did the idle time go?": ("tutorials/reading-the-report.md", "3. Where the idle node-time went", "step"),
        "Is there something else that suffices?": ("how-to/assess.md", "Alternatives", "scavenger"),
        "How do I publish our log?": ("reference/formats.md", "Anonymous logs", "anonymise"),
    },
    "researcher": {
        "How do I try my own objective?": ("tutorials/your-objective.md", "1. Write it", "thrifty"),
        "How do I try my own policy?": ("tutorials/your-objective.md", "7. Choose the competing tasks", "choose"),
        "Which objectives are there?": ("reference/objectives.md", "Objectives", "max-min"),
        "Which solver proves its answer?": ("reference/objectives.md", "Solvers", "proven"),
        "What is efficiency U?": ("explanation/semantics.md", "Yardsticks", "constant pool"),
        "What does a preemption cost in a replay?": ("explanation/semantics.md", "How progress is kept", "memory"),
        "How do I vary settings?": ("how-to/sweeps.md", "Run a sweep", "bftrain sweep"),
        "How do I compare with Gavel's rounds?": ("how-to/rounds.md", "Rounds", "--round"),
        "Are published figures reproduced?": ("how-to/reproduce.md", "BFTrainer", "published values"),
        "How do I describe tasks?": ("reference/formats.md", "Tasks as `.toml`", "curve"),
    },
    "ML engineer": {
        "What is the smallest elastic script?": ("tutorials/elastic-training.md", "1. The script", "commit"),
        "How do I try a resize?": ("tutorials/elastic-training.md", "2. Resize it", "bftrain train"),
        "How do I convert a DDP script?": ("how-to/elastic.md", "From a DDP script", "DistributedDataParallel"),
        "What about the Trainer of Transformers?": (
            "how-to/elastic.md",
            "With the Trainer of Transformers",
            "ElasticCallback",
        ),
        "What about Lightning?": ("how-to/elastic.md", "With Lightning", "ElasticCallback"),
        "What about FSDP?": ("how-to/elastic.md", "Sharded models", "fully_shard"),
        "What is lost if nodes die?": ("how-to/elastic.md", "When progress is safe", "disk"),
        "When does a program count as finished?": ("how-to/elastic.md", "Exit codes and preemption", "finish"),
        "How do I submit a task?": ("how-to/live.md", "Tasks", "bftrain submit"),
        "How do I use my own environment?": ("how-to/live.md", "Environments", "--set python"),
    },
    "administrator": {
        "Which privileges are needed?": ("how-to/sysadmin.md", "Administer live mode", "ordinary user"),
        "How many requests does slurmctld get?": ("how-to/sysadmin.md", "Requests to slurmctld", "squeue"),
        "Does it lower the users' priority?": ("how-to/sysadmin.md", "Fair share and accounting", "UsageFactor"),
        "Which preemption settings fit?": ("how-to/sysadmin.md", "Preemption", "GraceTime"),
        "Which ports are opened?": ("how-to/sysadmin.md", "Ports", "TCP"),
        "How do I cap its nodes?": ("how-to/sysadmin.md", "A cap that users cannot lift", "GrpTRES"),
        "How long do other jobs wait?": ("how-to/live.md", "Cost to the main queue", "median"),
        "Who may do what?": ("explanation/security.md", "Who may do what", "operators"),
        "How do I install hooks?": ("how-to/hooks.md", "Hooks on Slurm", "bftrain live --example slurm-hook"),
        "How do I watch it with Prometheus?": ("reference/programs.md", "Prometheus and Grafana", "/metrics"),
    },
}


@cache
def targets(page: str) -> frozenset[str]:
    """Return the pages that a page links to, as paths below docs/."""
    found = (link.partition("#")[0] for link in links((DOCS / page).read_text(encoding="utf-8")))
    return frozenset(os.path.normpath(Path(page).parent / link) for link in found if link.endswith(".md"))


def section(page: str, heading: str) -> str:
    """Return the text under a heading, up to the next heading of its level; empty if there is none."""
    text = site_text(DOCS / page)
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    if found is None:
        return ""
    rest = text[found.end() :]
    after = re.search(
        rf"^#{{1,{len(found[1])}}} ",
        re.sub(r"^```.*?^```$", lambda code: "`" * len(code[0]), rest, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return rest[: after.start()] if after else rest


@pytest.mark.parametrize("reader", QUESTIONS)
def test_each_reader_has_ten_questions(reader: str) -> None:
    assert len(QUESTIONS[reader]) == 10


@pytest.mark.parametrize(
    ("reader", "question"), [(reader, question) for reader, asked in QUESTIONS.items() for question in asked]
)
def test_a_question_is_answered_within_two_clicks(reader: str, question: str) -> None:
    """The first click opens a page that the start page links; the second one a section in its table of contents."""
    page, heading, answer = QUESTIONS[reader][question]
    assert page in targets("index.md"), f"the start page does not link {page}"
    assert answer in section(page, heading), f"{page} does not answer it under {heading!r}"


def test_a_missing_section_is_found() -> None:
    assert section("index.md", "No such heading") == ""
