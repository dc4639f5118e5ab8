"""Which pieces of divided tensors move between workers, and whether those that are left are all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.shard_exchange import GroupTables, covers, fetch
from bftrain_elastic.worker.shard_files import mapped
from bftrain_elastic.worker.shard_pieces import (
    LiveShard,
    PackedShards,
    ShardPiece,
    TensorBox,
    live_shards,
    make_optimizer_state,
    own_share,
    restore_numbers,
)

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch
ALONE = GroupRank()


def rows(name: str, begin: int, end: int, of: int = 9) -> ShardPiece:
    return ShardPiece(name, "float32", (of, 2), (begin, 0), (end - begin, 2))


def test_pieces_cover_a_tensor_only_together_and_replicas_count_once() -> None:
    whole = {"a": 18}
    assert covers([[rows("a", 0, 5)], [rows("a", 5, 9)]], whole)
    assert not covers([[rows("a", 0, 5)], [rows("a", 0, 5)]], whole)
    assert not covers([[rows("a", 0, 9)]], {"a": 18, "b": 4})


def test_pieces_are_cut_to_those_of_another_division(tmp_path: Path) -> None:
    want = torch.arange(18.0).view(9, 2)
    data = PackedShards.copy_of([LiveShard("a", want, (9, 2), TensorBox((0, 0), (9, 2)), divided=False)])
    packs = []
    for begin, end in ((0, 4), (4, 9)):
        piece = rows("a", begin, end)
        part = piece.box.cut(data.tensor(0), data.pieces[0].box)
        packs.append(PackedShards.copy_of([LiveShard("a", part, (9, 2), piece.box, divided=True)]))
    target = torch.zeros(4, 1)
    fetch(ALONE, packs, [LiveShard("a", target, (9, 2), TensorBox((3, 1), (4, 1)), divided=True)])
    assert target.tolist() == want[3:7, 1:].tolist()
    (tmp_path / "shards").write_bytes(bytes(packs[1].data.tolist()))
    (found,) = mapped(tmp_path, '{"shards": [["a", "float32", [9, 2], [4, 0], [5, 2], 0]]}')
    assert torch.equal(found.tensor(0), want[4:])


def test_of_what_all_hold_each_keeps_a_part_of_what_is_large() -> None:
    large, small = torch.arange(8192.0).view(64, 128), torch.ones(3)
    live = [
        LiveShard(name, one, tuple(one.shape), TensorBox((0,) * one.dim(), tuple(one.shape)), divided=False)
        for name, one in (("large", large), ("small", small))
    ]
    kept = [own_share(live, rank, 3) for rank in range(3)]
    assert torch.equal(torch.cat([each[0].tensor for each in kept]), large)
    assert max(each[0].tensor.numel() for each in kept) == 22 * 128
    assert all(torch.equal(each[1].tensor, small) for each in kept)


def test_an_optimizer_gets_its_values_back_also_those_that_are_numbers() -> None:
    class Counting(torch.optim.SGD):
        def step(self) -> None:
            super().step()
            for one in self.param_groups[0]["params"]:
                self.state[one]["count"] = self.state[one].get("count", 0) + 1

    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = torch.nn.Linear(2, 2)
        return model, Counting(model.parameters(), lr=0.1, momentum=0.9)

    model, optimizer = make()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    pack = PackedShards.copy_of(live_shards("x", model, optimizer))
    other, restored = make()
    make_optimizer_state("x", other, restored, {one.name: one for one in pack.pieces})
    fetch(ALONE, [pack], live_shards("x", other, restored))
    restore_numbers(restored)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        assert restored.state[two]["count"] == 1
        assert torch.equal(restored.state[two]["momentum_buffer"], optimizer.state[one]["momentum_buffer"])


def test_an_optimizer_with_other_values_is_refused() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight]["names"] = ["a"]
    with pytest.raises(BadScript, match=r"keeps a list in x/optimizer/weight/names \(use an optimizer that"):
        live_shards("x", model, optimizer)


@pytest.mark.parametrize(
    ("nodes", "held", "peers", "sends"),
    [
        ([1, 2, 3], [0, 1, 2], [1, 2, 0], [True, True, True]),
        ([1, 1, 2, 2], [0, 1, 2, 3], [2, 3, 0, 1], [True] * 4),  # to another node
        ([1, 2], [0, 0], [1, 0], [False, False]),  # replicas on two nodes are copies already
        ([1, 1, 2, 2], [0, 0, 1, 1], [2, 3, 0, 1], [True] * 4),  # on one node they are lost together
    ],
)
def test_copies_go_to_other_nodes_unless_these_hold_replicas(
    monkeypatch: pytest.MonkeyPatch, nodes: list[int], held: list[int], peers: list[int], sends: list[bool]
) -> None:
    found = [[node, [rows("a", begin, begin + 1)]] for node, begin in zip(nodes, held, strict=True)]
    monkeypatch.setattr("bftrain_elastic.worker.shard_exchange.gathered", lambda *_: found)
    tables = [GroupTables(GroupRank(1, rank, len(nodes), 1), []) for rank in range(len(nodes))]
    assert [one.peer for one in tables] == peers
    assert tables[0].sends == sends
    assert tables[0].writers == {held.index(one) for one in held}
