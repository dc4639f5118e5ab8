"""Runs a script like a prefork server's worker, in a new Python: ``-m bftrain_elastic.agent.script``.

The script's own environment may have an older release of this package. If that lacks this module, Python exits with an
error. A module without a main part would exit with 0 instead, as if the script had finished.
"""

from __future__ import annotations

import sys

from bftrain_elastic.agent.prefork_server import run_script

if __name__ == "__main__":
    sys.exit(run_script(sys.argv[1:]))
