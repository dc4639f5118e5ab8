"""What can be doubtful in a scheduler's records: each kind with its words, what is done about it, and the option.

Everything that a reader sets aside or assumes is counted under one of these names. There is no other way to drop a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RecordHazard:
    """One kind: what it ``says``, what was ``done``, the ``option`` that changes it.

    A ``doubt`` may make the log wrong, and ``--strict`` refuses it; the others are ordinary, and only counted.
    ``aside`` kinds are reasons for which a whole row is not used.
    """

    says: str
    done: str
    option: str = ""
    doubt: bool = False
    aside: bool = False


def _ordinary(says: str, done: str, option: str = "") -> RecordHazard:
    return RecordHazard(says, done, option)


def _doubt(says: str, done: str, option: str = "") -> RecordHazard:
    return RecordHazard(says, done, option, doubt=True)


def _aside(says: str, done: str = "row set aside", option: str = "") -> RecordHazard:
    return RecordHazard(says, done, option, aside=True)


def _doubtful_row(says: str, done: str = "row set aside", option: str = "") -> RecordHazard:
    return RecordHazard(says, done, option, doubt=True, aside=True)


HAZARDS: Final[dict[str, RecordHazard]] = {
    # rows that are not used, as is to be expected
    "never_started": _aside("jobs that never started", "row set aside: it held no node"),
    "zero_length": _aside("jobs that ended in the second they started", "row set aside: it held its nodes for no time"),
    "preemptible": _aside("jobs that may be preempted", "row set aside: their nodes count as idle", "--preemptible"),
    "outside_window": _aside("rows outside the window", option="--window"),
    "step": _aside("steps of jobs", "row set aside: the job itself counts"),
    "superseded": _aside("rows with the time of a later one", "row set aside: the later one holds"),
    "told_before": _aside("jobs of which another row or file tells as well, or tells more"),
    "other_record": _aside("records that say nothing of when a node is held"),
    # rows that are not used, and may be missed
    "duplicate": _doubtful_row("the same job again with the same times and nodes"),
    "backwards": _doubtful_row("jobs that end before they start"),
    "no_nodes": _doubtful_row(
        "jobs that ran and name no node", option="--counts, which reads how many instead of which"
    ),
    "other_nodes": _doubtful_row("jobs on nodes that --nodes does not name", option="--nodes"),
    "no_end": _doubtful_row("jobs that neither ended nor still run"),
    "no_start": _doubtful_row(
        "jobs that ended and whose start is not recorded", "row set aside: until then their nodes count as idle"
    ),
    "bad_time": _doubtful_row("times that cannot be read"),
    "bad_nodes": _doubtful_row("node sets that cannot be read"),
    "bad_count": _doubtful_row("numbers of nodes that no machine can have"),
    "bad_state": _doubtful_row("states that are not known"),
    "malformed": _doubtful_row("rows that are not of this format"),
    "overlong": _doubtful_row("lines longer than a megabyte"),
    # what was assumed or mended
    "not_utf8": _doubt("lines that are not UTF-8", "used, with the letters in question replaced"),
    "truncated": _doubt("a file that is cut off or damaged", "used as far as it goes"),
    "unended_line": _doubt(
        "files that end within a line: they may be cut off", "used as it is", "a line end, if it is whole"
    ),
    "more_members": _doubt("archives with more than one file", "only the first is read", "give the files themselves"),
    "local_times": _doubt("times without a zone", "taken as UTC", "--timezone"),
    "twice_times": _doubt(
        "local times that a clock shows twice or never", "taken as the earlier one", "epochs in the records"
    ),
    "epoch_ms": _ordinary("times in milliseconds", "divided by 1,000"),
    "relative_times": _doubt("times that count from zero, not from 1970", "used as they are"),
    "odd_layout": _ordinary("tabs or fractions where spaces and whole numbers belong", "read all the same"),
    "delimiter_in_text": _ordinary("rows with the separator inside a name", "read all the same"),
    "repeated_hosts": _ordinary("nodes that a job lists several times", "counted once each"),
    "unsorted": _ordinary("rows that are out of order", "sorted"),
    "clock_step": _doubt("a clock that went backwards", "sorted by time"),
    "still_running": _ordinary("jobs that still run where the records end", "hold their nodes to the end of the log"),
    "restarted": _doubt(
        "jobs that start again without a record of their end", "hold their nodes until they start again"
    ),
    "node_down": _ordinary("times in which a node is reported down or drained", "down while no job holds it"),
    "preempted_jobs": _doubt(
        "jobs that were preempted, in a partition that is not named as preemptible",
        "their nodes count as busy",
        "--preemptible",
    ),
    "unknown_partitions": _doubt(
        "partitions that --preemptible names, and no job was in", "no job counts as idle for it", "--preemptible"
    ),
    "hosts_incomplete": _doubt("jobs on several hosts of which only the first is named", "the others count as idle"),
    "unknown_nodes": _doubt("nodes that --nodes does not name", "left out", "--nodes"),
    "nodes_inferred": _ordinary("no list of nodes was given", "those that a row names are the machine", "--nodes"),
    "shared": _ordinary("jobs that share a node", "the node is idle when none holds it"),
    "held_twice": _doubt("a job that holds a node twice at once", "counted once"),
    "back_to_back": _ordinary("gaps of no length, where one job ends as the next starts", "closed: no idle time"),
    "short_gaps": _ordinary("idle gaps shorter than --min-gap", "closed: busy", "--min-gap"),
    "no_wait": _doubt("jobs whose waiting time is not known", "taken to start when they were submitted"),
    "requested_size": _ordinary("jobs of which only the size asked for is known", "taken to have got it"),
    "procs_as_nodes": _doubt(
        "jobs whose size is given in processors, on a machine with several a node",
        "as many whole nodes as they fit on",
        "--nodes N",
    ),
    "over_capacity": _doubt("more nodes in use than there are", "cut off at the number of nodes", "--nodes N"),
    "which_unknown": _ordinary(
        "only how many nodes are busy is known, not which",
        "nodes numbered; the fewest changes that fit the counts are assumed",
    ),
    "poll_gap": _doubt("gaps of more than three intervals between polls", "the last seen state goes on"),
    "missing_nodes": _doubt("nodes that a poll does not list though others do", "down until they are listed again"),
    "censored_start": _doubt(
        "time before the first job ended: jobs that ended earlier may be missing, as in a dump of ended jobs",
        "left out: the log begins when the first job ends",
        "--window A..B",
    ),
    "cut_end": _doubt(
        "time after the last job started: jobs that ended later may be missing, as in a dump of ended jobs",
        "left out: the log ends when the last job starts",
        "--keep-end",
    ),
    "censored_end": _doubt(
        "idle after a node's last job, and no row still runs: jobs that ended later may be missing",
        "counts as idle",
        "--window A..B",
    ),
    "suspected_downtime": _doubt(
        "all nodes idle at once for long: was the machine down?", "counts as idle", "--down suspected, or --down A..B"
    ),
    "marked_down": _ordinary("idle time that --down declares", "down", "--down"),
    "always_idle": _doubt("nodes that are idle from beginning to end", "count as idle", "--nodes"),
    # what bftrain schedule assumes
    "derived": _doubt(
        "no record of which nodes were idle: a simulated main scheduler left them so", "the log is labelled derived"
    ),
    "refused_jobs": _doubt("jobs larger than the machine", "refused: they are not in the schedule", "--nodes N"),
    "no_users": _doubt("no job names its user", "all count as one user's"),
    "no_limit": _ordinary("jobs that asked for no time", "their run time is planned with", "--estimates last2"),
    "over_limit": _ordinary("jobs that ran longer than they asked for", "run as long as they did"),
    "drained": _doubt(
        "idle after the last job was submitted: on a real machine more would have come",
        "counts as idle",
        "--until last-submit",
    ),
    # what bftrain tasks import cannot use
    "no_work": _aside("jobs without any work: no time, or no step", "row set aside: there is nothing to do"),
    "no_gpus": _aside("jobs that use no GPU", "row set aside: it wants no node"),
    "no_duration": _doubtful_row("jobs whose start or end is not recorded"),
    "unknown_speed": _doubtful_row("jobs of whose model and gang no speed was measured", option="--node-kind"),
    "does_not_fit": _doubtful_row("jobs whose model does not fit on so few nodes of this kind", option="--node-kind"),
    "too_large": _doubtful_row("jobs that so many nodes can never hold", "row set aside: refused", option="--nodes"),
    "same_name": _doubtful_row("jobs with the name of another one"),
    "gang_changed": _ordinary("jobs that had another number of GPUs in a later attempt", "the first number counts"),
}


def option_for(name: str) -> str:
    """Return the option of an import that changes what is done about this kind; nothing if there is none."""
    known = HAZARDS.get(name)
    return known.option if known is not None else ""
