"""The files of the status page: all served without the token, under a strict policy, in our colours."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain.live.api import page
from tests.helpers.live_seen import ObservedRun

FOLDER = Path(page.__file__).parent
DATA = ("/v1/status", "/v1/tasks", "/v1/nodes", "/v1/history", "/v1/watch?updates=1", "/v1/page")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedRun]:
    with ObservedRun(tmp_path_factory.mktemp("live")) as running:
        yield running


def ask(live: ObservedRun, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("name", page.FILES)
def test_a_file_needs_no_token_and_comes_under_a_strict_policy(live: ObservedRun, name: str) -> None:
    status, headers, body = ask(live, "/" if name == page.FIRST else f"/{name}")
    assert (status, body) == (200, (FOLDER / name).read_bytes())
    assert headers["content-type"] == page.FILES[name]
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == "'none'"
    assert policy.pop("frame-ancestors") == policy.pop("base-uri") == policy.pop("form-action") == "'none'"
    assert set(policy.values()) == {"'self'"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", DATA)
def test_what_tells_of_the_run_needs_the_token(live: ObservedRun, path: str) -> None:
    assert ask(live, path)[0] == 401
    assert ask(live, path, authorization=f"Bearer {live.token[:-1]}")[0] == 401
    assert ask(live, path, authorization=f"Bearer {live.token}")[0] == 200
    # Nothing but the header counts: no address holds it, where logs would keep it
    assert ask(live, f"{path}{'&' if '?' in path else '?'}token={live.token}")[0] == 401


@pytest.mark.parametrize("query", ["span=0", "span=x", "updates=-1", "updates=x", "spam=1"])
def test_an_odd_request_is_refused_before_anything_is_sent(live: ObservedRun, query: str) -> None:
    assert ask(live, f"/v1/watch?{query}", authorization=f"Bearer {live.token}")[0] == 400


def test_the_page_holds_no_script_and_no_style_of_its_own_and_names_no_other_place() -> None:
    html = (FOLDER / page.FIRST).read_text()
    assert re.findall(r"<script[^>]*>(.+?)</script>", html, re.DOTALL) == []
    assert not re.search(r"<style|\sstyle=|\son\w+=", html)
    for name in page.FILES:
        text = (FOLDER / name).read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "http" not in text
        assert not re.search(r"""["'(]//""", text)
    assert "innerHTML" not in "".join((FOLDER / name).read_text() for name in page.FILES if name.endswith(".js"))
