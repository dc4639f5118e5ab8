"""The pool of idle nodes, and the task table of unfinished tasks."""

from __future__ import annotations

from msgspec.structs import replace

from bftrain import TaskMeasured
from bftrain.deciding.node_stay import CostFit, NodeStay
from bftrain.deciding.pool import NodePool
from bftrain.deciding.task_table import TaskTable
from tests.unit.core.samples import curve, spec


def pool_of(*groups: str) -> NodePool:
    """Return a pool whose groups are the words given, a letter a node."""
    pool = NodePool()
    for group in groups:
        pool.join(group)
    return pool


def free(pool: NodePool) -> dict[int, str]:
    return {group: "".join(nodes) for group, nodes in pool.free.items()}


def test_nodes_that_join_together_are_a_group() -> None:
    pool = pool_of("ab", "c")
    assert len(pool) == 3
    assert free(pool) == {0: "ab", 1: "c"}


def test_who_is_in_the_pool_already_stays_in_its_group() -> None:
    pool = pool_of("ab")
    assert pool.join("bcb") == ["b", "b"]
    assert free(pool) == {0: "ab", 1: "c"}
    assert pool.join("") == []
    assert pool.join("a") == ["a"]
    assert pool.join("d") == []
    assert free(pool) == {0: "ab", 1: "c", 2: "d"}  # a join that adds no node uses no number


def test_who_leaves_is_gone_whether_held_or_free() -> None:
    pool = pool_of("abc")
    assert pool.take("b") == {"b": 0}
    assert pool.leave("bcx") == {"b": 0, "c": 0}
    assert (len(pool), free(pool)) == (1, {0: "a"})
    assert pool.leave("a") == {"a": 0}
    assert free(pool) == {}


def test_a_node_that_comes_back_is_fresh() -> None:
    pool = pool_of("ab")
    pool.leave("a")
    pool.join("a")
    assert free(pool) == {0: "b", 1: "a"}


def test_taken_nodes_are_idle_but_not_free() -> None:
    pool = pool_of("abc", "d")
    assert pool.take("ad") == {"a": 0, "d": 1}
    assert len(pool) == 4
    assert free(pool) == {0: "bc"}
    assert [pool.is_free(node) for node in "abdx"] == [False, True, False, False]


def test_a_free_node_is_free_as_its_own_kind_only() -> None:
    pool = NodePool()
    pool.join(["a", "b"], "v100")
    pool.take(["a"])
    assert [pool.is_free(node, "v100") for node in "abx"] == [False, True, False]
    assert not pool.is_free("b", "k80")
    assert not pool.is_free("b", "")


def test_nodes_given_back_return_to_their_group_unless_they_left() -> None:
    pool = pool_of("ab", "c")
    pool.take("abc")
    pool.leave("b")
    pool.give_back("bca")
    assert free(pool) == {1: "c", 0: "a"}
    assert len(pool) == 2


def test_the_roster_keeps_the_order_of_submission() -> None:
    task_table = TaskTable()
    for name in "cab":
        task_table.add(spec(name))
    task_table.remove("a")
    task_table.add(spec("a"))
    assert list(task_table) == ["c", "b", "a"]
    assert task_table.get("x") is None


def test_losses_are_listed_by_task_and_free_nodes_are_skipped() -> None:
    task_table = TaskTable()
    task_table.add(spec("a"))
    task_table.add(spec("b"))
    task_table.assign("a", {"n1": 0, "n2": 0})
    task_table.assign("b", {"n3": 1})
    assert task_table.lose(["n3", "n9", "n2"]) == {"b": ["n3"], "a": ["n2"]}
    assert (task_table["a"].held, task_table["b"].held) == ({"n1": 0}, {})
    assert task_table.lose(["n3"]) == {}


def test_nodes_taken_from_a_task_have_no_owner_any_more() -> None:
    task_table = TaskTable()
    task_table.add(spec("a"))
    task_table.assign("a", {"n1": 0, "n2": 0, "n3": 0})
    task_table.withdraw("a", ["n2"])
    assert task_table.lose(["n2"]) == {}
    assert task_table.release_all("a") == ("n1", "n3")
    assert task_table.lose(["n1", "n3"]) == {}
    assert task_table["a"].size == 0
    task_table.assign("a", {"n4": 0})
    assert task_table.remove("a") == ("n4",)
    assert task_table.lose(["n4"]) == {}


def test_a_member_competes_with_what_is_known_of_it() -> None:
    task_table = TaskTable()
    task_table.add(
        spec("a", 2, 5, work_samples=100.0, weight=3.0, grow_cost_s=1.0, shrink_cost_s=2.0, start_cost_s=4.0)
    )
    task_table.assign("a", {"n1": 0, "n2": 0})
    seen = task_table["a"].competing(7.0)
    assert (seen.name, seen.size, seen.min_nodes, seen.max_nodes) == ("a", 2, 2, 5)
    assert (seen.grow_cost_s, seen.shrink_cost_s, seen.start_cost_s, seen.weight) == (1.0, 2.0, 4.0, 3.0)
    assert (seen.work_left_samples, seen.deadline_in_s) == (100.0, None)
    assert task_table["a"].competing(8.0) is seen  # unchanged, so not built again
    task_table.withdraw("a", ["n1"])
    assert task_table["a"].competing(8.0).size == 1


def test_a_deadline_comes_nearer() -> None:
    task_table = TaskTable()
    task_table.add(spec("a", deadline_s=100.0))
    assert task_table["a"].competing(30.0).deadline_in_s == 70.0
    assert task_table["a"].competing(130.0).deadline_in_s == -30.0
    assert [task_table.competing(("a",), now_s).tasks[0].deadline_in_s for now_s in (0.0, 40.0)] == [100.0, 60.0]


def test_measurements_change_what_is_known_and_leave_the_rest() -> None:
    task_table = TaskTable()
    task_table.add(spec("a", grow_cost_s=1.0, shrink_cost_s=2.0))
    before = task_table["a"].competing(0.0)
    task_table["a"].measured(TaskMeasured(time_s=0.0, task="a"))
    assert task_table["a"].competing(0.0) == before
    measured = TaskMeasured(
        time_s=0.0, task="a", curve=curve(5.0), grow_cost_s=0.0, start_cost_s=9.0, work_left_samples=0.0
    )
    task_table["a"].measured(measured)
    after = task_table["a"].competing(0.0)
    assert after.curve == curve(5.0)
    assert (after.grow_cost_s, after.shrink_cost_s, after.start_cost_s) == (0.0, 2.0, 9.0)
    assert after.work_left_samples == 0.0


def sizes(table: TaskTable, *names: str, fit: CostFit | None = None) -> list[int]:
    return [task.size for task in table.competing(names, 0.0, fit=fit).tasks]


def test_tasks_are_described_again_only_if_something_changed() -> None:
    table = TaskTable()
    for name in "abc":
        table.add(spec(name))
    before = table.competing(("a", "b"), 0.0)
    assert table.competing(("a", "b"), 5.0) is before
    table.assign("a", {"n1": 0, "n2": 0})
    after = table.competing(("a", "b"), 6.0)
    assert [task.size for task in before.tasks] == [0, 0]
    assert [task.size for task in after.tasks] == [2, 0]
    assert after.tasks[1] is before.tasks[1]
    assert sizes(table, "c", "a") == [0, 2]
    table.withdraw("a", ["n1"])
    assert sizes(table, "a", "b") == [1, 0]


def test_each_fit_of_costs_has_descriptions_of_its_own() -> None:
    table, fits = TaskTable(), [NodeStay(idle_node_s=seconds, departures=1.0).fit(2.0) for seconds in (100.0, 5000.0)]
    table.add(spec("a", grow_cost_s=10.0))
    costs = [table.competing(("a",), 0.0, fit=fit).tasks[0].grow_cost_s for fit in (*fits, *fits)]
    assert costs[:2] == costs[2:]
    assert costs[0] != costs[1]
    table.assign("a", {"n1": 0})
    assert [sizes(table, "a", fit=fit) for fit in fits] == [[1], [1]]


def test_a_task_is_described_with_the_nodes_and_the_costs_that_it_has_now() -> None:
    table, fit = TaskTable(), NodeStay().fit(4.0)
    table.add(spec("a"))
    waiting = table["a"].competing(1.0, fit=fit)
    table.assign("a", {"n1": 0, "n2": 0}, "v100")
    assert table["a"].competing(2.0, fit=fit) == replace(waiting, size=2, kind="v100")
    table.withdraw("a", ("n1", "n2"))
    assert table["a"].competing(3.0, fit=fit) == waiting
    table["a"].measured(TaskMeasured(time_s=4.0, task="a", grow_cost_s=99.0))
    assert table["a"].competing(4.0, fit=fit) == replace(waiting, grow_cost_s=fit.costs_of(table["a"].spec).grow_cost_s)


def test_the_nodes_of_a_task_are_one_object_until_they_change() -> None:
    table = TaskTable()
    table.add(spec("a"))
    table.assign("a", {"n1": 0, "n2": 0})
    before = table.holdings()["a"]
    assert before == ("n1", "n2")
    assert table.holdings()["a"] is before
    assert table.lose(["n1"]) == {"a": ["n1"]}
    assert table.holdings() == {"a": ("n2",)}


def test_another_task_by_the_name_of_one_that_is_over_is_described_again() -> None:
    table = TaskTable()
    table.add(spec("a", weight=2.0))
    assert table.competing(("a",), 0.0).tasks[0].weight == 2.0
    table.remove("a")
    table.add(spec("a", weight=3.0))
    assert table.competing(("a",), 0.0).tasks[0].weight == 3.0
