"""What an agent's command line says, and what is wrong with it in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain_elastic.agent.agent_settings import AgentSettings, command_line
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.wire.authenticated_stream import make_secret


def words(folder: Path, manager: str) -> list[str]:
    make_secret(folder / "secret")
    return ["--manager", manager, "--secret", str(folder / "secret"), "--node", "n1", "--preload", "a,,b"]


def test_a_command_line_is_read(tmp_path: Path) -> None:
    found = AgentSettings.read(command_line(""), words(tmp_path, "10.0.0.1:7070"))
    assert (found.manager, found.node, found.preload, found.grace_s) == (("10.0.0.1", 7070), "n1", ("a", "b"), 0.0)


def test_how_much_is_kept_of_logs_is_said_in_megabytes(tmp_path: Path) -> None:
    given = words(tmp_path, "10.0.0.1:7070")
    assert AgentSettings.read(command_line(""), given).log_limit == 64_000_000
    assert AgentSettings.read(command_line(""), [*given, "--log-limit", "1.5"]).log_limit == 1_500_000
    with pytest.raises(ElasticError, match="--log-limit: must be at least 1"):
        AgentSettings.read(command_line(""), [*given, "--log-limit", "0"])


@pytest.mark.parametrize("manager", ["10.0.0.1", "10.0.0.1:", ":7070", "10.0.0.1:http"])
def test_a_manager_without_address_or_port_is_named(tmp_path: Path, manager: str) -> None:
    given = words(tmp_path, manager)
    with pytest.raises(ElasticError, match=f"--manager: '{manager}' is not ADDRESS:PORT"):
        AgentSettings.read(command_line(""), given)
