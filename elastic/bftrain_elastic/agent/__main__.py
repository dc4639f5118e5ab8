"""``python -m bftrain_elastic.agent`` starts the agent of a node."""

import os
import sys

from bftrain_elastic.agent.agent import main

if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # the node is waited for: an interpreter that tidies up takes longer than all the rest
