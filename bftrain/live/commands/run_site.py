"""Start the live run of a site's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain.live import process
from bftrain.live.commands.demo_site import EventNarrator, PreemptionNarrator
from bftrain.live.run.live_log import LiveLog, writes_to_journald

if TYPE_CHECKING:
    from bftrain.cli.output import Output
    from bftrain.live.model.site_config import SiteSettings
    from bftrain.live.run.live_log import LogFormat

_STDERR: Final = 2


def run_site(site: SiteSettings, log_format: LogFormat, out: Output) -> None:
    """Run until SIGTERM or Ctrl-C."""
    log = LiveLog(out.say, log_format, for_journald=writes_to_journald(_STDERR))
    narrator = EventNarrator(log.info) if out.level > 0 else PreemptionNarrator(log.info)
    process.run(site, log.info, narrator.begin, warn=log.warning)
