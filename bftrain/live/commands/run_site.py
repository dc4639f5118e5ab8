"""Start the live run of a site's settings, and for a member of a site report to this one."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from bftrain.live import process
from bftrain.live.client.client import Client
from bftrain.live.commands.demo_site import EventNarrator, PreemptionNarrator
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.run.live_log import LiveLog, writes_to_journald

if TYPE_CHECKING:
    from bftrain.cli.output import Output
    from bftrain.live.model.member_views import MemberReport, MemberShare
    from bftrain.live.model.site_config import SiteSettings
    from bftrain.live.nodes.shared_scheduler import AskSite
    from bftrain.live.run.live_log import LogFormat

_STDERR: Final = 2


def run_site(site: SiteSettings, log_format: LogFormat, out: Output) -> None:
    """Run until SIGTERM or Ctrl-C."""
    log = LiveLog(out.say, log_format, for_journald=writes_to_journald(_STDERR))
    narrator = EventNarrator(log.info) if out.level > 0 else PreemptionNarrator(log.info)
    ask_site = _ask_at(site.join) if site.join else None
    process.run(site, log.info, narrator.begin, warn=log.warning, ask_site=ask_site)


def _ask_at(socket: str) -> AskSite:
    """Return what reports to the site at a socket."""

    def ask(report: MemberReport) -> MemberShare:
        with closing(Client(socket)) as client:
            return client.report_member(report)

    return lambda report: run_in_daemon_thread(lambda: ask(report))
