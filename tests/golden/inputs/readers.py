"""Import each sample of records and print the digest of its log and what was found."""

from pathlib import Path

import bftrain

for path in sorted(Path("records").iterdir()):
    try:
        imported = bftrain.import_logs(path)
    except bftrain.BftrainError as error:
        print(f"{path.name}: {type(error).__name__}: {error}")
        continue
    log = imported.log
    print(f"{path.name}: {log.sha256} nodes {len(log.nodes)}")
    for found in imported.findings:
        print(f"  {found.name}: {found.count}, {found.node_s or 0:.6g} node-seconds, {found.first}, {found.done}")
