"""Misuses: mistakes of a script by which its workers train apart or lose their training, each with its fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ScriptMisuse:
    """A mistake as a clause, and its fix."""

    clause: str
    fix: str


NOT_KEPT: Final = "not all that it trains is kept"
DRIFT: Final = "the models of its workers differ"
UNEVEN: Final = "its workers have unequal shares of a batch"
SAME_NUMBERS: Final = "its workers draw the same random numbers in the model"
MISUSES: Final = {
    "accelerate": ScriptMisuse(
        "Accelerate sees one process, and so exchanges no gradients",
        "make the Accelerator in train(), by bftrain_elastic.accelerate.group_accelerator(state)",
    ),
    "huggingface": ScriptMisuse(
        "the Trainer of Transformers sees one process, and so exchanges no gradients",
        "give it to bftrain_elastic.huggingface.run_trainer(trainer), without a State and run() of your own",
    ),
    "lightning": ScriptMisuse(
        "the Trainer of Lightning sees one process, and so exchanges no gradients",
        "give it to bftrain_elastic.lightning.run_trainer(trainer, model), without a State and run() of your own",
    ),
    "parallel": ScriptMisuse(
        "nothing exchanges their gradients",
        "train with the model that state.parallel() returns, after each change of the group",
    ),
    "horovod": ScriptMisuse(
        "nothing exchanges their gradients", "train with hvd.DistributedOptimizer(optimizer, named_parameters=...)"
    ),
    "model": ScriptMisuse(
        "a model that is trained is not in the State, so it begins again on each new worker",
        "give it to the State: State(model=model)",
    ),
    "optimizer": ScriptMisuse(
        "an optimizer is not in the State, so its moments begin again on each new worker",
        "give it to the State: State(optimizer=optimizer)",
    ),
    "divided": ScriptMisuse(
        "an optimizer that is divided among the workers is in no ShardedTraining, so its moments begin again",
        "give model and optimizer to a ShardedTraining, and this to the State, as docs/elastic.md shows",
    ),
    "position": ScriptMisuse(
        "its State does not say how far it is, so train() begins at the first sample again after each change",
        "give the data to the State: State(data=ElasticLoader(...)), or count, State(position=0), and go on from there",
    ),
    "pending": ScriptMisuse(
        "it commits between the parts of a step, and gradients that are accumulated are lost in a change",
        "call state.commit() after optimizer.step() alone, and let the state's position count whole steps",
    ),
    "rewrap": ScriptMisuse(
        "parameters were frozen, trained again or replaced after state.parallel() was called",
        "call model = state.parallel() again after each such change",
    ),
    "shares": ScriptMisuse(
        f"{UNEVEN}, and the mean loss over each counts the same",
        "take 'mine, weight = state.share(N)' for a batch of N, and multiply the mean loss by the weight",
    ),
    "random": ScriptMisuse(
        f"{SAME_NUMBERS}, such as those of dropout: all have one seed, and a new one begins with the first number",
        "draw them in 'with state.random_numbers(N):' for a batch of N, or call "
        "torch.manual_seed(seed + 1000 * state.step + state.rank) where train() begins",
    ),
    "rates": ScriptMisuse(
        "the learning rates of their optimizers differ",
        "put the optimizer and what changes its rates into the State: State(optimizer=optimizer, schedule=schedule)",
    ),
    "layout": ScriptMisuse(
        "they train different sets of parameters",
        "let every worker do optimizer.step() for the same models: not inside of 'if state.rank == 0'",
    ),
    "followed": ScriptMisuse(
        "a new worker, which had followed the others until it joined, made a step with weights of its own",
        "let nothing but steps of optimizers change what these train; if it is so already, please report this",
    ),
    "weights": ScriptMisuse(
        "one of them changes its weights alone, or began with weights of its own",
        "let all change them alike, and keep what is trained in the State",
    ),
}


def known_misuses(names: Iterable[str]) -> list[ScriptMisuse]:
    """Return the misuses of these names; those that this version does not know are left out."""
    return [MISUSES[name] for name in names if name in MISUSES]


def clauses(names: Iterable[str]) -> str:
    """Return one sentence on these mistakes."""
    return "; ".join(one.clause for one in known_misuses(names))


def fixes(names: Iterable[str]) -> str:
    """Return the fixes, the most important first."""
    return "; ".join(one.fix for one in known_misuses(names))
