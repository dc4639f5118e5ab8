"""The files of the status page: all served without the token, under a strict policy, in our colours."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain.live.api import page
from bftrain.live.api.routes import ROUTES
from bftrain_replay.drawing.theme import DARK, HUES, LIGHT
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


def test_each_file_in_the_folder_is_served_and_no_other() -> None:
    assert {file.name for file in FOLDER.iterdir() if file.suffix not in {".py", ""}} == set(page.FILES)


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


def test_only_the_page_is_open_to_every_user() -> None:
    known = {f"/{name}" for name in page.FILES if name != page.FIRST} | {"/"}
    assert {route.path for route in ROUTES if route.public} == known
    assert all(route.method == "GET" for route in ROUTES if route.public)


@pytest.mark.parametrize("path", ["/", "/page.js", "/v1/status"])
def test_a_foreign_name_that_points_to_us_is_refused(live: ObservedRun, path: str) -> None:
    assert ask(live, path, host="evil.example", authorization=f"Bearer {live.token}")[0] == 421


def test_a_page_is_read_and_not_written(live: ObservedRun) -> None:
    assert ask(live, "/", "POST")[0] in {401, 405}
    status, headers, body = ask(live, "/", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) == (FOLDER / page.FIRST).stat().st_size


def test_the_stream_is_one_of_server_sent_events(live: ObservedRun) -> None:
    status, headers, body = ask(live, "/v1/watch?span=3600&updates=2", authorization=f"Bearer {live.token}")
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    assert re.fullmatch(rb"(data: \{[^\n]*\}\n\n){2}", body)


@pytest.mark.parametrize("query", ["span=0", "span=x", "updates=-1", "updates=x", "spam=1"])
def test_an_odd_request_is_refused_before_anything_is_sent(live: ObservedRun, query: str) -> None:
    assert ask(live, f"/v1/watch?{query}", authorization=f"Bearer {live.token}")[0] == 400


def variables(css: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", css))


def test_its_colours_are_those_of_our_other_pages() -> None:
    css = (FOLDER / "page.css").read_text()
    light, dark = css.split("@media (prefers-color-scheme: dark)")[:2]
    ours = variables(light)
    assert tuple(ours.pop(f"hue{number}") for number in range(len(HUES))) == HUES
    assert ours == {role: LIGHT[role] for role in ours}
    assert variables(dark) == {role: DARK[role] for role in ours}


def test_the_page_holds_no_script_and_no_style_of_its_own_and_names_no_other_place() -> None:
    html = (FOLDER / page.FIRST).read_text()
    assert re.findall(r"<script[^>]*>(.+?)</script>", html, re.DOTALL) == []
    assert not re.search(r"<style|\sstyle=|\son\w+=", html)
    for name in page.FILES:
        text = (FOLDER / name).read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "http" not in text
        assert not re.search(r"""["'(]//""", text)
    assert "innerHTML" not in "".join((FOLDER / name).read_text() for name in page.FILES if name.endswith(".js"))
