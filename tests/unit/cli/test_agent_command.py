"""`bftrain agent`: what it finds out about its machine, and what it rejects before it becomes the agent."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.in_process import CommandLine, Ended

SetGpus = Callable[..., None]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("ab" * 32)
    file.chmod(0o600)
    return file


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The options of the process that the command becomes."""
    options: dict[str, str] = {}

    def become(_program: str, words: list[str]) -> None:
        module, *given = words[2:]
        assert module == "bftrain_elastic.agent"
        options.update(zip(given[::2], given[1::2], strict=True))

    monkeypatch.setattr(os, "execv", become)
    return options


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetGpus:
    """Set the names that nvidia-smi prints; None: there is no such program."""

    def names(*printed: str | None) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(str(number) for number in range(len(printed))))
        folder = tmp_path / "bin"
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder))
        if None not in printed:
            script = "#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in printed)
            (folder / "nvidia-smi").write_text(script)
            (folder / "nvidia-smi").chmod(0o755)

    return names


def agent(bftrain: CommandLine, secret: Path, *words: str) -> Ended:
    return bftrain("agent", "--manager", "127.0.0.1:7411", "--secret", secret, *words)


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla K80", "k80"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("Quadro RTX 6000", "rtx-6000"),
        (None, "gpu"),
    ],
)
def test_the_kind_is_the_name_of_the_gpus(
    bftrain: CommandLine, secret: Path, started: dict[str, str], gpus: SetGpus, printed: str | None, kind: str
) -> None:
    gpus(printed, printed)
    ended = agent(bftrain, secret)
    assert (ended.code, started["--kind"]) == (0, kind), ended.err
    assert (started["--node"], started["--slots"], started["--address"]) == (socket.gethostname(), "0", "auto")
    assert f"kind {kind}: connecting to 127.0.0.1:7411" in ended.err


def test_a_machine_without_gpus_is_a_cpu_node(
    bftrain: CommandLine, secret: Path, started: dict[str, str], gpus: SetGpus
) -> None:
    gpus()
    assert agent(bftrain, secret).code == 0
    assert started["--kind"] == "cpu"


def test_what_is_given_is_not_detected(
    bftrain: CommandLine, secret: Path, started: dict[str, str], gpus: SetGpus
) -> None:
    gpus("Tesla K80", "Tesla V100-SXM2-16GB")
    assert agent(bftrain, secret, "--kind", "old", "--gpus", "1", "--name", "n1").code == 0
    assert (started["--kind"], started["--slots"], started["--node"]) == ("old", "1", "n1")


def test_gpus_of_several_kinds_need_a_decision(
    bftrain: CommandLine, secret: Path, started: dict[str, str], gpus: SetGpus
) -> None:
    gpus("Tesla K80", "Tesla V100-SXM2-16GB")
    ended = agent(bftrain, secret)
    assert (ended.code, started) == (4, {})
    assert "this machine has GPUs of several kinds: k80, v100" in ended.err
    assert "pass --kind" in ended.err


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--name", "a b"], 2, "--name: must be a word"),
        (["--kind", " v100"], 2, "--kind: must be printable text"),
        (["--manager", "head"], 3, "'head' is not ADDRESS:PORT"),
        (["--secret", "none"], 3, "none: cannot be read"),
    ],
)
def test_wrong_values_are_rejected_at_once(
    bftrain: CommandLine, secret: Path, started: dict[str, str], words: list[str], code: int, error: str
) -> None:
    ended = agent(bftrain, secret, *words)
    assert (ended.code, started) == (code, {})
    assert error in ended.err


def test_a_secret_that_others_can_read_is_rejected(bftrain: CommandLine, secret: Path, started: dict[str, str]) -> None:
    secret.chmod(0o644)
    ended = agent(bftrain, secret)
    assert (ended.code, started) == (3, {})
    assert f"chmod 600 {secret}" in ended.err
