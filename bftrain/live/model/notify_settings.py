"""Settings of notifications about finished tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from bftrain.values import checks

_ENDS: Final = frozenset({"done", "failed", "cancelled"})


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receivers of notifications. The address of a webhook may be a secret, so it is in a private file."""

    on: tuple[str, ...] = ("done", "failed")  # and cancelled, if that is of interest
    webhook_file: str = ""  # a file with an http(s) address, for us alone: JSON is posted there
    mail_to: str = ""  # an address; {user} is the task's user
    mail_from: str = ""  # "": us on this machine
    sendmail: str = "/usr/sbin/sendmail"  # that takes mail
    smtp: str = ""  # HOST:PORT that takes mail instead

    def __post_init__(self) -> None:
        """Check every field."""
        if unknown := sorted({*checks.texts(self, "on")} - _ENDS):
            checks.reject(self, "on", f"there is no end '{unknown[0]}'", f"known: {', '.join(sorted(_ENDS))}")
        for name in ("mail_to", "mail_from"):
            address = getattr(self, name)
            if address and (address.count("@") != 1 or not address.isprintable() or set(address) & set(" ,;<>")):
                checks.reject(self, name, f"is no mail address: {address!r}", 'such as "{user}@example.org"')
        host, _, port = self.smtp.rpartition(":")
        if self.smtp and not (host and port.isdecimal()):
            checks.reject(self, "smtp", f"must be HOST:PORT, not {self.smtp!r}")

    def under(self, base: Path) -> Notify:
        """Return the same with a relative path counted from a folder."""
        path = str(base / Path(self.webhook_file).expanduser()) if self.webhook_file else ""
        return msgspec.structs.replace(self, webhook_file=path)
