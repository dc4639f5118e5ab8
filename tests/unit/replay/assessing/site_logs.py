"""The real logs on which assessments are compared with plain computations, small enough for these."""

from __future__ import annotations

import functools

from bftrain import EventLog, import_logs, schedule
from tests.helpers.site_data import site_data


@functools.cache
def site_log(name: str) -> EventLog:
    """Return the log: a part of Summit, of wagap or of a schedule of Theta's jobs, or all of ub-micro."""
    if name == "summit":
        whole = import_logs(site_data("summit/ndstat-10sdn6-evt.tar.gz")).log
        return whole.select(nodes=slice(0, 96), window=(whole.start_s, whole.start_s + 4.3 * 86_400.0))
    if name == "theta":  # its records say how many nodes, so a schedule of its jobs says which were idle
        idle = schedule(site_data("swf/theta_2022.swf.gz"), nodes=4392, until="2022-02-10").log
        return idle.select(nodes=slice(0, 96), window=(idle.start_s, idle.start_s + 4.6 * 604_800.0))
    files = {"wagap": "pernode/wagap-2013.swf.gz", "ub-micro": "sacct/ub-micro-slurm_acct.out"}
    log = import_logs(site_data(files[name])).log
    return log.select(window=(log.start_s, log.start_s + 33 * 86_400.0)) if name == "wagap" else log
