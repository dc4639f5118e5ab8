"""Notifier: posts to a webhook and sends mail when tasks are over, in a thread of its own."""

from __future__ import annotations

import getpass
import http.client
import os
import re
import smtplib
import socket
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.message import EmailMessage
from email.utils import make_msgid
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Final

from bftrain.errors import BadConfig
from bftrain.live.model.notify_settings import Notify
from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.values import wire

_WAITING: Final = 1000  # notifications at most
_PATIENCE_S: Final = 15.0  # for each try
_AGAIN_S: Final = (2.0, 30.0)  # before the second and the third try
_LETTERS: Final = 2000  # of a reason
_LINKS: Final = frozenset({"http", "https"})
_LOCAL_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")

Send = Callable[[], None]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that refuses redirects: notifications go only to the address in the site's settings."""

    def redirect_request(self, *_: object) -> None:
        """Return nothing: no redirect is followed."""


class Notifier:
    """Sends what is due. ``remark`` is called from its thread with what could not be sent; it names no address."""

    def __init__(self, settings: Notify, site: str, remark: Callable[[str], None]) -> None:
        self._settings = settings
        self._site = site
        self._remark = remark
        self._webhook = _read_address(Path(settings.webhook_file)) if settings.webhook_file else ""
        self._due: Queue[tuple[str, Send]] = Queue(_WAITING)
        self._ending = threading.Event()
        if self._webhook or settings.mail_to:
            threading.Thread(target=self._run, name="notifier", daemon=True).start()

    def over(self, record: LiveTaskRecord) -> None:
        """Queue the notifications about a finished task."""
        if str(record.state) not in self._settings.on:
            return
        for how, send in self._sends(record):
            try:
                self._due.put_nowait((f"{how} on task '{record.name}'", send))
            except Full:
                self._remark(f"{how} on task '{record.name}' is left out: {_WAITING} others wait")

    def close(self, patience_s: float = 0.0) -> None:
        """Stop sending, after waiting at most ``patience_s`` for queued notifications."""
        deadline = time.monotonic() + patience_s
        while self._due.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)
        self._ending.set()

    def _sends(self, record: LiveTaskRecord) -> Iterator[tuple[str, Send]]:
        if self._webhook:
            body = wire.encode(_document(record, self._site))
            yield "the webhook", lambda: self._post(body)
        if to := self._settings.mail_to:
            if "{user}" in to and not _LOCAL_PART.fullmatch(record.user):
                self._remark(f"no mail on task '{record.name}': its user has no name that can be an address")
                return
            mail = _mail(record, self._site, to.replace("{user}", record.user), self._sender)
            yield "the mail", lambda: self._mail(mail)

    @property
    def _sender(self) -> str:
        return self._settings.mail_from or f"{getpass.getuser()}@{socket.gethostname()}"

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                what, send = self._due.get(timeout=0.5)
            except Empty:
                continue
            try:
                self._try(what, send)
            finally:
                self._due.task_done()

    def _try(self, what: str, send: Send) -> None:
        reason = ""
        for wait_s in (0.0, *_AGAIN_S):
            if self._ending.wait(wait_s):
                break
            try:
                send()
            except Exception as error:  # noqa: BLE001 - the others are still to be sent
                reason = _words(error)
            else:
                return
        self._remark(f"{what} could not be sent: {reason}")

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(  # noqa: S310 - its scheme was looked at
            self._webhook, data=body, headers={"content-type": "application/json"}, method="POST"
        )
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_PATIENCE_S):
            pass

    def _mail(self, mail: EmailMessage) -> None:
        if self._settings.smtp:
            host, _, port = self._settings.smtp.rpartition(":")
            server = smtplib.SMTP(host, int(port), timeout=_PATIENCE_S)
            try:
                server.send_message(mail)
            finally:
                with suppress(OSError, smtplib.SMTPException):  # it has the mail, or has refused it, by now
                    server.quit()
                server.close()
            return
        subprocess.run(  # noqa: S603 - as words that no shell reads; the address stands in the mail
            [self._settings.sendmail, "-t", "-i"],
            input=mail.as_bytes(),
            check=True,
            timeout=_PATIENCE_S,
            capture_output=True,
        )


def _read_address(path: Path) -> str:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "rb") as opened:
            about, text = os.fstat(opened.fileno()), opened.read(4096).decode(errors="replace").strip()
    except OSError as error:
        raise BadConfig(f"cannot be read: {error.strerror}", where=f"[notify] webhook_file '{path}'") from error
    where = str(path)
    if about.st_uid not in {os.getuid(), 0} or stat.S_IMODE(about.st_mode) & 0o077:
        raise BadConfig("others than us can read or write it", where=where, fix=f"chmod 600 {path}")
    if text.partition("://")[0] not in _LINKS or not text.isprintable() or " " in text or "//" not in text[:8]:
        raise BadConfig("holds no http or https address", where=where, fix="write the address on one line")
    return text


def _words(error: Exception) -> str:
    """Return what went wrong, without the address, which may be in the words of an error."""
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code}"
    if isinstance(error, subprocess.CalledProcessError):
        return f"{Path(error.cmd[0]).name} ended with {error.returncode}"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return f"the address is refused: {', '.join(f'{code}' for code, _ in error.recipients.values())}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"it answered {error.smtp_code}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    known = isinstance(cause, OSError | smtplib.SMTPException) and not isinstance(cause, http.client.InvalidURL)
    strerror = getattr(cause, "strerror", None)
    return f"{type(cause).__name__}{f': {strerror}' if known and strerror else ''}"


def _summary(record: LiveTaskRecord) -> str:
    return f"task {record.name} (#{record.number}) is {record.state}"


def _document(record: LiveTaskRecord, site: str) -> dict[str, object]:
    """Return what is posted; ``text`` is what chats show."""
    reason = f": {record.reason[:_LETTERS]}" if record.reason and str(record.state) != "done" else ""
    return {
        "text": f"{site}: {_summary(record)}{reason}",
        "site": site,
        "task": record.name,
        "number": record.number,
        "user": record.user,
        "state": str(record.state),
        "reason": record.reason[:_LETTERS],
        "submitted_s": record.submitted_s,
        "ended_s": record.ended_s,
        "samples": record.progress.samples,
        "node_s": record.progress.node_s,
    }


def _mail(record: LiveTaskRecord, site: str, to: str, sender: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, to
    mail["Subject"] = f"[{site}] {_summary(record)}"
    mail["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"
    with suppress(ValueError):
        mail["Date"] = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(record.ended_s or time.time()))
    lines = [
        f"{_summary(record)}.",
        "",
        f"samples: {record.progress.samples:,.0f} in {record.progress.node_s / 3600:.3f} node-hours",
        f"folder: {record.run.folder}",
        *(["", record.reason[:_LETTERS]] if record.reason else []),
        "",
        f"bftrain logs '#{record.number}' prints what it printed.",
    ]
    mail.set_content("\n".join(lines) + "\n")
    return mail
