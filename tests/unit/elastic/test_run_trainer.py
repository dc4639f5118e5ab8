"""Trainers that cannot be resized are refused in words before anything is trained."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bftrain_elastic import huggingface, lightning
from bftrain_elastic.errors import BadScript

PARTS = {"create_accelerator_and_postprocess", "is_fsdp_enabled", "is_deepspeed_enabled"}


@pytest.mark.parametrize(("enabled", "word"), [("is_fsdp_enabled", "FSDP"), ("is_deepspeed_enabled", "DeepSpeed")])
def test_a_trainer_of_transformers_that_divides_its_model_is_refused(enabled: str, word: str) -> None:
    trainer = SimpleNamespace(**dict.fromkeys((*PARTS, enabled), True) | dict.fromkeys(PARTS - {enabled}, False))
    with pytest.raises(BadScript, match=f"a Trainer with {word} divides the model") as refused:
        huggingface.run_trainer(trainer)
    assert "--backend process" in refused.value.fix


def test_data_that_the_trainer_of_transformers_divides_itself_is_refused() -> None:
    args = SimpleNamespace(train_sampling_strategy="batch_rebalance")
    trainer = SimpleNamespace(args=args, **dict.fromkeys(PARTS, False))
    with pytest.raises(BadScript, match="divides the data for a number of workers that will change") as refused:
        huggingface.run_trainer(trainer)
    assert "group_by_length" in refused.value.fix


class FSDPStrategy:
    """As that of Lightning by its name, which is all that is looked at."""


def test_a_trainer_of_lightning_that_divides_its_model_is_refused() -> None:
    kind = type("Trainer", (), {"__module__": "lightning.pytorch.trainer.trainer", "strategy": FSDPStrategy()})
    with pytest.raises(BadScript, match="FSDPStrategy divides the model") as refused:
        lightning.run_trainer(kind(), None)
    assert "--backend process" in refused.value.fix


def test_one_trainer_is_not_taken_for_the_other() -> None:
    with pytest.raises(BadScript, match="a SimpleNamespace is no Trainer of Transformers"):
        huggingface.run_trainer(SimpleNamespace())
    with pytest.raises(BadScript, match="a SimpleNamespace is no Trainer of Lightning"):
        lightning.run_trainer(SimpleNamespace(), None)
