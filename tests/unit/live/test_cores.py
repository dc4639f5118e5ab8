"""Which nodes are ours, and how members of a site share them: pure functions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bftrain import Entity, NodesJoined, NodesLeft, Run, TaskCancelled, TaskPaused, TaskResumed, TaskSubmitted
from bftrain.live.nodes.member_shares import Claim, MemberShares, divide
from bftrain.live.nodes.reconcile import NodeTracker, node_events, task_events
from tests.helpers.live_inside import LiveTaskRecord, LiveTaskState, MemberReport, NodeKinds
from tests.unit.core.samples import spec


def record(name: str, state: LiveTaskState = LiveTaskState.SUBMITTED) -> LiveTaskRecord:
    return LiveTaskRecord(
        number=1, name=name, uid=1, user="ada", launcher="fake", spec=spec(name), guessed=False,
        run=Run(argv=("run",)), submitted_s=0.0, state=state,
    )  # fmt: skip


def some(letters: str) -> frozenset[str]:
    return frozenset(letters)


def tracker(*, agents_suffice: bool = False, agents_used: bool = True, **known: str) -> NodeTracker:
    made = NodeTracker(agents_suffice=agents_suffice, agents_used=agents_used)
    for name, letters in known.items():
        setattr(made, name, some(letters))
    return made


@pytest.mark.parametrize(
    ("world", "ours"),
    [
        (tracker(allowed="abc", present="bcd"), "bc"),
        (tracker(allowed="abc", present="b", expected="cd"), "bc"),
        (tracker(present="b", expected="c"), ""),
        (tracker(present="b", expected="c", agents_suffice=True), "bc"),
        (tracker(allowed="a", present="bc", taken="c", agents_suffice=True), "b"),
        (tracker(allowed="abc", drained="b", agents_used=False), "ac"),
        (tracker(allowed="abc", drained="b", agents_used=False, agents_suffice=True), "ac"),
    ],
)
def test_a_node_is_ours_by_word_and_agent_and_what_is_in_doubt_is_not(world: NodeTracker, ours: str) -> None:
    assert world.ours == some(ours)


def test_what_was_taken_is_ours_again_with_a_new_agent_or_word() -> None:
    pilots = NodeTracker(agents_suffice=True, agents_used=True)
    pilots.came("a")
    pilots.take(["a"])
    assert pilots.ours == frozenset()
    pilots.went("a")
    pilots.came("a")
    assert pilots.ours == {"a"}
    hooks = NodeTracker(agents_suffice=False, agents_used=True)
    hooks.came("a")
    hooks.allow(["a", "b"], until_s=9.0)
    assert (hooks.ours, hooks.until_s) == (some("a"), {"a": 9.0, "b": 9.0})
    hooks.set_allowed(["b"])
    assert (hooks.ours, hooks.until_s) == (frozenset(), {"b": 9.0})
    hooks.closed = True
    hooks.came("b")
    assert hooks.ours == frozenset()


def test_all_gpus_of_a_drained_node_are_left() -> None:
    shared = NodeTracker(agents_suffice=True, agents_used=True)
    shared.present = {"n1/gpu0", "n1/gpu1", "n2/gpu0"}
    shared.drained = frozenset({"n1"})
    assert shared.ours == {"n2/gpu0"}
    shared.drained = frozenset({"n1/gpu1"})
    assert shared.ours == {"n1/gpu0", "n2/gpu0"}


def test_departures_come_before_those_who_join() -> None:
    assert list(node_events({"a", "b"}, {"b", "c"}, 5.0, NodeKinds())) == [
        NodesLeft(time_s=5.0, nodes=("a",)),
        NodesJoined(time_s=5.0, nodes=("c",)),
    ]


def test_nodes_of_another_kind_than_was_known_leave_and_join_again() -> None:
    kinds = NodeKinds({"a": "v100", "b": "v100"})
    assert list(node_events({"a", "b"}, {"a"}, 5.0, kinds, mistaken=["a"])) == [
        NodesLeft(time_s=5.0, nodes=("a", "b")),
        NodesJoined(time_s=5.0, nodes=("a",), kind="v100"),
    ]


@pytest.mark.parametrize(
    ("unfinished", "paused", "tasks", "expected"),
    [
        (("a",), "", (record("a"),), []),
        ((), "", (record("a"),), [TaskSubmitted(time_s=1.0, spec=spec("a"))]),
        (("a",), "", (), [TaskCancelled(time_s=1.0, task="a")]),
        (("a",), "", (record("a", LiveTaskState.DONE),), [TaskCancelled(time_s=1.0, task="a")]),
        (("a",), "", (record("a", LiveTaskState.PAUSED),), [TaskPaused(time_s=1.0, task="a")]),
        (("a",), "a", (record("a"),), [TaskResumed(time_s=1.0, task="a")]),
        (("a",), "a", (record("a", LiveTaskState.PAUSED),), []),
    ],
)
def test_tasks_are_as_their_owners_want_them(
    unfinished: tuple[str, ...], paused: str, tasks: tuple[LiveTaskRecord, ...], expected: list[object]
) -> None:
    assert list(task_events(unfinished, paused, tasks, (), 1.0)) == expected


@pytest.mark.parametrize(
    ("total", "claims", "shares"),
    [
        (4, {"ann": Claim(4, held=4), "bob": Claim(4)}, {"ann": 2, "bob": 2}),
        (5, {"ann": Claim(4, held=2), "bob": Claim(4, held=3)}, {"ann": 2, "bob": 3}),  # none moves for the odd one
        (5, {"ann": Claim(1), "bob": Claim(9), "eve": Claim(9)}, {"ann": 1, "bob": 2, "eve": 2}),
        (6, {"ann": Claim(9, weight=2.0), "bob": Claim(9)}, {"ann": 4, "bob": 2}),
        (9, {"ann": Claim(2), "bob": Claim(3)}, {"ann": 2, "bob": 3}),
        (4, {"ann": Claim(4, fewest=3), "bob": Claim(4)}, {"ann": 3, "bob": 1}),  # two nodes would be of no use to ann
        (4, {"bob": Claim(4, fewest=3), "ann": Claim(4, fewest=3)}, {"bob": 4, "ann": 0}),
        (1, {"ann": Claim(0), "bob": Claim(1), "eve": Claim(1)}, {"ann": 0, "bob": 1, "eve": 0}),
        (0, {"ann": Claim(4)}, {"ann": 0}),
        (3, {}, {}),
    ],
)
def test_nodes_are_divided_by_weights_and_none_below_what_is_of_use(
    total: int, claims: Mapping[str, Claim], shares: Mapping[str, int]
) -> None:
    assert divide(total, claims) == shares


class Site:
    """Members and a scheduler: pilots of a member start on idle nodes as far as it may have them."""

    def __init__(self, nodes: int, **wanted: int) -> None:
        self.now_s = 0.0
        self.shares = MemberShares({"rich": Entity(weight=2.0), "small": Entity(nodes=1)}, now=lambda: self.now_s)
        self.idle = nodes
        self.wanted = wanted
        self.held = dict.fromkeys(wanted, 0)
        self.fails: set[str] = set()  # whose pilots do not start
        self.silent: set[str] = set()

    def go(self, seconds: int) -> dict[str, int]:
        """Let time pass; return what each member holds then."""
        for _ in range(0, seconds, 2):
            self.now_s += 2.0
            for user in [*self.held]:
                if user in self.silent:
                    continue
                report = MemberReport(wanted=self.wanted[user], held=self.held[user])
                may = self.shares.report(user, report, self.idle)
                more = min(may, self.wanted[user]) - self.held[user]
                more = min(more, 0 if user in self.fails else self.idle)
                self.held[user] += more
                self.idle -= more
        return dict(self.held)


def test_the_first_gives_back_what_is_the_share_of_the_second_and_takes_it_again_when_that_is_done() -> None:
    site = Site(4, ann=4, bob=0)
    assert site.go(20) == {"ann": 4, "bob": 0}
    site.wanted["bob"] = 4
    assert site.go(20) == {"ann": 2, "bob": 2}
    assert site.go(600) == {"ann": 2, "bob": 2}
    site.wanted["bob"] = 0
    site.held["bob"], site.idle = 0, 2
    assert site.go(20) == {"ann": 4, "bob": 0}


def test_weights_and_quotas_of_users_hold() -> None:
    assert Site(6, ann=6, rich=6, small=6).go(60) == {"ann": 2, "rich": 3, "small": 1}


def test_nodes_that_the_main_queue_takes_and_gives_are_shared_again() -> None:
    site = Site(4, ann=9, bob=9)
    site.go(20)
    site.held["bob"] = 0  # a large job takes them
    assert site.go(20) == {"ann": 1, "bob": 1}
    site.idle += 4
    assert site.go(20) == {"ann": 3, "bob": 3}


def test_a_member_whose_pilots_fail_costs_the_others_a_node_now_and_then() -> None:
    site = Site(4, ann=4, bob=4)
    site.fails = {"bob"}
    site.go(40)
    lost_s = 0
    for _ in range(1200):
        lost_s += 4 - site.go(2)["ann"]
    assert lost_s / 1200 < 0.05 * 4
    assert next(one.stuck for one in site.shares.views if one.user == "bob")
    site.fails = set()
    site.now_s += 3600.0
    assert site.go(100) == {"ann": 2, "bob": 2}


def test_a_silent_member_is_not_counted_and_comes_back_with_what_it_holds() -> None:
    site = Site(4, ann=4, bob=4)
    site.go(20)
    site.silent = {"bob"}
    assert site.go(100) == {"ann": 2, "bob": 2}
    site.silent = set()
    assert site.go(20) == {"ann": 2, "bob": 2}
    assert [one.user for one in site.shares.views] == ["ann", "bob"]


def test_members_who_can_use_all_nodes_only_take_turns() -> None:
    shares, now_s = MemberShares(now=lambda: now_s), 0.0
    held, turns = {"ann": 0, "bob": 0}, []
    for _ in range(600):
        now_s += 2.0
        for user, has in held.items():
            report = MemberReport(wanted=4, fewest=4, held=has)
            may = shares.report(user, report, 4 - sum(held.values()))
            held[user] = may if may <= has else min(may, 4 - sum(held.values()) + has)
        turns += [user for user in held if held[user] == 4 and turns[-1:] != [user]]
    assert turns[:3] in (["ann", "bob", "ann"], ["bob", "ann", "bob"])
    assert len(turns) < 6
