"""Notifications of tasks that are over: what is posted and mailed, and that nothing secret is said."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import default
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from bftrain.errors import BadConfig, BadValue
from bftrain.live.model.notify_settings import Notify
from bftrain.live.model.site_config import load
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Progress, Run
from bftrain.live.run import notifier as notifier_module
from bftrain.live.run.notifier import Notifier
from tests.helpers.live_inside import decided, in_a_loop, live_inside, submit
from tests.unit.core.samples import spec

PATIENCE_S = 60.0
PRIVATE = "T0P-0F-TH3-P4TH"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier_module, "_AGAIN_S", (0.001, 0.001))


def record(name: str = "a", state: LiveTaskState = LiveTaskState.DONE, **more: Any) -> LiveTaskRecord:  # noqa: ANN401 - any field
    given = {"user": "ann", "reason": "", "progress": Progress(samples=5.0, node_s=7200.0), **more}
    run = Run(argv=("x.py",), folder="/f")
    return LiveTaskRecord(
        number=7,
        name=name,
        uid=1,
        launcher="l",
        spec=spec(name),
        guessed=False,
        run=run,
        submitted_s=1.0,
        state=state,
        ended_s=9.0,
        **given,
    )


@contextmanager
def receiver(*answers: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the address of a server that answers so, the last answer again and again, and what it was sent."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(answers[min(len(got), len(answers)) - 1])
            self.send_header("location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")  # type: ignore[attr-defined]  # of an HTTPServer
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{PRIVATE}", got
        server.shutdown()
        thread.join()


@contextmanager
def mail_server(**answers: str) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the address of a mail server, and the mails that it took; ``answers`` to verbs, else all is fine."""
    mails: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 here")
            while line := self.rfile.readline():
                verb = line.split()[0].decode().upper()
                if verb == "DATA":
                    self.say("354 go on")
                    text = b"".join(iter(self.rfile.readline, b".\r\n"))
                    mails.append(text.replace(b"\r\n..", b"\r\n."))
                self.say(answers.get(verb, "250 fine"))

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", mails
        finally:
            server.shutdown()
            thread.join()


def webhook(folder: Path, address: str, mode: int = 0o600) -> str:
    file = folder / "webhook"
    file.write_text(f"{address}\n")
    file.chmod(mode)
    return str(file)


def sent(settings: Notify, *records: LiveTaskRecord) -> list[str]:
    """Send notifications; give what was remarked."""
    remarks: list[str] = []
    sender = Notifier(settings, "site", remarks.append)
    for one in records:
        sender.over(one)
    sender.close(PATIENCE_S)
    return remarks


def test_the_end_of_a_task_is_posted_as_json(tmp_path: Path) -> None:
    with receiver(200) as (address, got):
        failed = record("b", LiveTaskState.FAILED, reason="no such file")
        assert (
            sent(
                Notify(webhook_file=webhook(tmp_path, address)), record(), failed, record("c", LiveTaskState.CANCELLED)
            )
            == []
        )
    assert [one["text"] for one in got] == ["site: task a (#7) is done", "site: task b (#7) is failed: no such file"]
    assert (got[0]["user"], got[0]["state"], got[0]["samples"], got[0]["node_s"]) == ("ann", "done", 5.0, 7200.0)


def test_it_is_tried_again_and_what_fails_is_said_without_the_address(tmp_path: Path) -> None:
    with receiver(500, 500, 200) as (address, got):
        assert sent(Notify(webhook_file=webhook(tmp_path, address)), record()) == []
        assert len(got) == 3
    with receiver(404) as (address, got):
        remarks = sent(Notify(webhook_file=webhook(tmp_path, address)), record())
        assert (remarks, len(got)) == (["the webhook on task 'a' could not be sent: it answered 404"], 3)
    (nowhere,) = sent(Notify(webhook_file=webhook(tmp_path, address)), record())
    assert nowhere.startswith("the webhook on task 'a' could not be sent: ConnectionRefusedError")
    assert PRIVATE not in nowhere


def test_what_is_posted_goes_nowhere_else(tmp_path: Path) -> None:
    with receiver(302) as (address, got):
        remarks = sent(Notify(webhook_file=webhook(tmp_path, address)), record())
        assert (remarks, len(got)) == (["the webhook on task 'a' could not be sent: it answered 302"], 3)


def test_mail_goes_to_the_user_and_the_address_is_in_no_argument(tmp_path: Path) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\ncat >{tmp_path}/mail\n')
    program.chmod(0o755)
    settings = Notify(mail_to="{user}@example.org", mail_from="us@example.org", sendmail=str(program))
    assert sent(settings, record("b", LiveTaskState.FAILED, reason="no such file\nSubject: x")) == []
    head, _, body = (tmp_path / "mail").read_text().partition("\n\n")
    assert (tmp_path / "words").read_text() == "-t -i\n"
    assert "To: ann@example.org" in head
    assert "Subject: [site] task b (#7) is failed" in head
    assert head.count("Subject:") == 1
    assert "no such file" in body


def test_mail_goes_through_a_server_whole_and_once() -> None:
    with mail_server() as (address, mails):
        settings = Notify(mail_to="{user}@example.org", mail_from="us@example.org", smtp=address)
        reason = "Gr\xf6\xdfe\n.\nRCPT TO:<x@evil>"  # a dot alone ends a mail
        assert sent(settings, record("b", LiveTaskState.FAILED, reason=reason), record()) == []
    failed, done = (message_from_bytes(mail, policy=default) for mail in mails)
    assert [(one["To"], one["Subject"]) for one in (failed, done)] == [
        ("ann@example.org", "[site] task b (#7) is failed"),
        ("ann@example.org", "[site] task a (#7) is done"),
    ]
    assert failed["Message-ID"] != done["Message-ID"]
    assert reason in failed.get_content().replace("\r\n", "\n")
    assert "5 in 2.000 node-hours" in done.get_content()


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"RCPT": "550 no such user"}, "the address is refused: 550"),
        ({"MAIL": "451 later"}, "it answered 451"),
        ({"DATA": "552 too much"}, "it answered 552"),
        ({"QUIT": "421 too busy to say goodbye"}, ""),
    ],
)
def test_what_a_mail_server_refuses_is_said_and_harms_no_other(answers: dict[str, str], reason: str) -> None:
    with mail_server(**answers) as (address, _):
        settings = Notify(mail_to="{user}@example.org", mail_from="us@example.org", smtp=address)
        assert sent(settings, record()) == ([f"the mail on task 'a' could not be sent: {reason}"] if reason else [])
    (away,) = sent(settings, record())
    assert away == "the mail on task 'a' could not be sent: ConnectionRefusedError: Connection refused"


def test_a_user_that_can_be_no_address_and_a_program_that_fails_are_said() -> None:
    settings = Notify(mail_to="{user}@example.org", sendmail="/bin/false")
    assert sent(settings, record(user="x y, z@evil")) == [
        "no mail on task 'a': its user has no name that can be an address"
    ]
    assert sent(settings, record()) == ["the mail on task 'a' could not be sent: false ended with 1"]


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for wrong in ({"on": ("over",)}, {"mail_to": "a b@c"}, {"mail_to": "ann"}, {"smtp": "host"}):
        with pytest.raises(BadValue):
            Notify(**wrong)  # type: ignore[arg-type]  # which is what is tried
    for address, mode, says in (
        (f"https://x/{PRIVATE}", 0o644, "others than us"),
        (f"file:///{PRIVATE}", 0o600, "no http or https address"),
        ("", 0o600, "no http or https address"),
    ):
        with pytest.raises(BadConfig, match=says) as refused:
            Notifier(Notify(webhook_file=webhook(tmp_path, address, mode)), "site", print)
        assert PRIVATE not in str(refused.value)
    with pytest.raises(BadConfig, match="cannot be read"):
        Notifier(Notify(webhook_file=str(tmp_path / "gone")), "site", print)
    (tmp_path / "site.toml").write_text('[notify]\nwebhook_file = "hook"\n')
    assert load(tmp_path / "site.toml").notify.webhook_file == str(tmp_path / "hook")


@in_a_loop
async def test_a_live_run_reports_each_end_once_when_it_is_written(tmp_path: Path) -> None:
    ended: list[tuple[str, str]] = []
    async with live_inside(tmp_path) as (daemon, service, _, world):
        daemon.task_manager.on_over = lambda one: ended.append((one.name, str(one.state)))
        await submit(service, "a", largest=1)
        await submit(service, "b", largest=1)
        world.lend("n1", "n2")
        await decided(daemon)
        world.tell("a", "done")
        await decided(daemon)
        world.tell("b", "done")
        await decided(daemon)
    assert ended == [("a", "done"), ("b", "done")]
