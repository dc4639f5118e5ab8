"""``python -m bftrain_elastic.agent`` starts the agent of a node."""

import os
import sys

from bftrain_elastic.agent.agent import main

if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # the scheduler waits for this node, and interpreter cleanup would take longer than the rest of the shutdown
    os._exit(code)
