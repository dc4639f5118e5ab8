"""The stock of pilots beside a simulated scheduler, with any events there: never too much, in the end enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bftrain.live.schedulers.backend import ALIVE, Pilot, PilotLimits, PilotState, Trouble
from bftrain.live.schedulers.policy import PilotMoves, PilotPolicy, PilotPolicySettings

MARKS = ("long", "mid", "short")


@dataclass
class World:
    """A scheduler with so many nodes, of which main jobs take what they like."""

    nodes: int
    rules: PilotPolicySettings
    most_jobs: int
    together: bool = False
    wanted: int = 40
    holes: set[str] = field(default_factory=lambda: set(MARKS))  # lengths for which there is room
    main: int = 0
    pilots: dict[str, Pilot] = field(default_factory=dict)
    now: float = 0.0
    sent: list[tuple[float, int]] = field(default_factory=list)
    ids: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.stock = PilotPolicy(self.rules, together=self.together)
        self.stock.limit(PilotLimits(submitted=self.most_jobs))

    @property
    def idle(self) -> int:
        return self.nodes - self.main - len(self.of(PilotState.RUNNING, PilotState.ENDING))

    def of(self, *states: PilotState) -> list[Pilot]:
        return [pilot for pilot in self.pilots.values() if pilot.state in states]

    def put(self, id_: str, state: PilotState, mark: str = "", node: str = "", start_s: float = 0.0) -> None:
        end_s = self.now if state not in ALIVE else None
        self.pilots[id_] = Pilot(id=id_, state=state, mark=mark, node=node, start_s=start_s, end_s=end_s)

    def turn(self, pilot: Pilot, state: PilotState) -> None:
        self.put(pilot.id, state, pilot.mark, pilot.node, pilot.start_s)

    def take(self, wanted: int) -> None:
        """Main jobs hold ``wanted`` nodes from now on; pilots in their way are preempted."""
        self.main = min(wanted, self.nodes)
        for pilot in self.of(PilotState.RUNNING)[: max(0, -self.idle)]:
            self.turn(pilot, PilotState.TAKEN)

    def schedule(self) -> None:
        """Start those that wait and fit, the longest first."""
        free = iter(range(self.idle))
        for mark in MARKS:
            for pilot in self.of(PilotState.WAITING):
                if pilot.mark == mark and mark in self.holes and next(free, None) is not None:
                    self.put(pilot.id, PilotState.RUNNING, mark, f"n{pilot.id}", self.now)

    def round(self, *, fails: Trouble | None = None) -> PilotMoves:
        seen = [*self.pilots.values()]
        moves = self.stock.moves(self.now, self.now, seen, marks=MARKS, idle=self.idle)
        alive = len(self.of(*ALIVE))
        for id_ in moves.cancel:
            assert self.pilots[id_].state in ALIVE
            waits = self.pilots[id_].state is PilotState.WAITING
            self.turn(self.pilots[id_], PilotState.TAKEN if waits else PilotState.ENDING)
        for mark, number in zip(MARKS, moves.submit, strict=True):
            assert number >= 0
            if not number:
                continue
            if fails:
                self.stock.failed(self.now, fails, alive)
                break
            for _ in range(1 if self.together else number):  # commands
                self.stock.submitted(1)
                self.sent.append((self.now, 1))
            for _ in range(number):
                self.put(str(next(self.ids)), PilotState.WAITING, mark)
        return moves

    def happen(self, kind: str, value: object) -> None:
        match kind, value:
            case "main", int():
                self.take(value)
            case "want", int():
                self.wanted = value
                self.stock.want(value)
            case "die", int():
                for pilot in self.of(PilotState.RUNNING)[:value]:
                    self.turn(pilot, PilotState.FAILED)
            case "rest", int():
                self.now += value
            case "holes", set():
                self.holes = value

    def step(self, fails: Trouble | None = None) -> None:
        """Let the stock act and the scheduler answer, and see that no bound is broken."""
        before, held = self.idle, len(self.of(PilotState.RUNNING))
        moves = self.round(fails=fails)
        if not self.rules.max_nodes and not self.rules.reserve:
            assert all(self.pilots[id_].state is not PilotState.ENDING for id_ in moves.cancel), "who runs may run"
        assert len(self.of(*ALIVE)) <= self.most_jobs
        self.schedule()
        if self.rules.reserve:
            assert self.idle >= min(self.rules.reserve, before), "pilots took what was reserved"
        running = len(self.of(PilotState.RUNNING))
        assert running <= max(self.rules.max_nodes or running, held)
        assert running <= max(self.wanted, held)
        self.now += 1
        self.settle()

    def settle(self) -> None:
        """Let what ends be over, and forget what was over long ago."""
        for pilot in self.of(PilotState.ENDING):
            self.turn(pilot, PilotState.TAKEN)
        for pilot in [*self.pilots.values()]:
            if pilot.end_s is not None and self.now - pilot.end_s > 300:
                del self.pilots[pilot.id]


EVENTS = st.one_of(
    st.tuples(st.just("main"), st.integers(0, 40)),
    st.tuples(st.just("want"), st.integers(0, 40)),
    st.tuples(st.just("fail"), st.sampled_from(list(Trouble))),
    st.tuples(st.just("die"), st.integers(1, 5)),
    st.tuples(st.just("rest"), st.integers(1, 200)),
    st.tuples(st.just("holes"), st.sets(st.sampled_from(MARKS))),
)
SETTINGS = st.builds(
    PilotPolicySettings,
    pending=st.integers(1, 8),
    reserve=st.sampled_from([0, 0, 1, 3]),
    max_nodes=st.sampled_from([0, 0, 5, 12]),
    submits_per_min=st.sampled_from([10.0, 60.0, 300.0]),
)


@settings(max_examples=30, phases=[phase for phase in Phase if phase is not Phase.shrink])  # a world takes a while
@given(
    SETTINGS,
    st.integers(1, 30),
    st.integers(1, 60),
    st.sampled_from(["one pilot", "many pilots"]),
    st.lists(EVENTS, max_size=30),
)
def test_it_keeps_to_every_bound_and_fills_what_is_idle(
    rules: PilotPolicySettings, nodes: int, most_jobs: int, a_command: str, events: list[tuple[str, object]]
) -> None:
    world = World(nodes, rules, most_jobs, together=a_command == "many pilots")
    for event in events:
        world.happen(*event)
        world.step(event[1] if isinstance(event[1], Trouble) else None)

    for begin, _ in world.sent:
        for end, _ in world.sent:
            within = sum(number for at, number in world.sent if begin <= at <= end)
            assert not 0 <= end - begin < 60 or within <= rules.submits_per_min

    # Peace: every node that is ours to use is used before long, whichever lengths fit
    world.holes = world.holes or {MARKS[-1]}
    for _ in range(300):
        world.now += 5
        world.step()
    running = len(world.of(PilotState.RUNNING))
    most = min(world.wanted, rules.max_nodes or nodes, most_jobs, max(0, nodes - world.main - rules.reserve))
    if most_jobs > rules.pending * len(MARKS):
        assert running >= min(most, most_jobs - rules.pending * len(MARKS))
    # Those that run go on when fewer are wanted
    ours = min(rules.max_nodes or nodes, max(0, nodes - world.main - rules.reserve))
    assert running <= ours or not rules.reserve


@given(st.lists(st.sampled_from(list(Trouble)), min_size=1, max_size=12))
def test_a_scheduler_that_refuses_is_asked_ever_less(troubles: list[Trouble]) -> None:
    stock = PilotPolicy(PilotPolicySettings())
    now, gaps = 0.0, []
    for trouble in troubles:
        assert sum(stock.moves(now, now, [], marks=MARKS).submit) > 0
        stock.failed(now, trouble, alive=0)
        again = stock.moves(now, now, [], marks=MARKS)
        assert sum(again.submit) == 0
        gaps.append(again.again_s)
        now += again.again_s
    if len(set(troubles)) == 1:
        assert gaps == sorted(gaps)
    assert max(gaps) <= 600
