"""How many nodes each member of a site may hold: fair shares, and a member that fails costs the others little."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bftrain import Entity
from bftrain.live.model.member_views import MemberReport
from bftrain.live.nodes.member_shares import Claim, MemberShares, divide


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
