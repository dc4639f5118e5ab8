"""Call the functions of the Python interface, and write what they return."""

import json
from pathlib import Path

import bftrain

log, tasks = bftrain.generate_log(16, 0.3, 4), bftrain.generate_mix(5, 2)
bftrain.save_log(log, "saved.npz")
bftrain.save_tasks(tasks, "saved.toml")
loaded, listed = bftrain.load_log("saved.npz"), bftrain.load_tasks("saved.toml")
print("the same after it was saved:", loaded.sha256 == log.sha256, listed == tasks)
print("sample log", bftrain.sample_log().sha256)
print("imported", bftrain.import_logs("sacct.txt", options=bftrain.ImportOptions(min_gap_s=60.0)).log.sha256)

fast = bftrain.replay("saved.npz", "saved.toml", baseline="equal-share")
fair = bftrain.replay(log, tasks, objective="max-min", sensitivity=True)
fast.write(Path("fast"))
bftrain.compare(fast, fair, labels=["fast", "fair"]).frame().to_csv("compared.csv")
bftrain.assess(log, tasks).write(Path("assessed"))
bftrain.sweep("sweep.toml", "swept", jobs=1)

cluster = bftrain.rounds({"v100": 4}, tasks, bftrain.RoundSettings(gang="min"), until_s=7200.0)
cluster.tasks.to_csv("cluster.csv")
print("rounds", cluster.result.summary)
queue = bftrain.schedule("jobs.swf", policy="fcfs")
print("schedule", queue.result.summary)
fast_again = bftrain.load_run("fast")
print("the same after it was saved:", fast_again.metrics == fast.metrics, fast_again.tasks.equals(fast.tasks))
workload = bftrain.import_workload("jobs.swf", bftrain.WorkloadOptions(first=2))
print("workload", *workload.tasks, sep="\n  ")

problem = json.loads(Path("examples/problems/quickstart.json").read_text())
print("solved", bftrain.solve(problem, "exact").sizes)
kinds = json.loads(Path("examples/problems/kinds.json").read_text())
print("speeds", {task: f"{speed:.8g}" for task, speed in bftrain.share(kinds, "max-min").speeds.items()})

harvester = bftrain.build_harvester(bftrain.Settings(max_tasks=10))
task = bftrain.TaskSpec(name="first", max_nodes=3, curve=bftrain.SpeedCurve(nodes=(1, 3), rate=(10.0, 27.0)))
for event in (
    bftrain.TaskSubmitted(time_s=0.0, spec=task),
    bftrain.NodesJoined(time_s=10.0, nodes=("n1", "n2", "n3", "n4")),
    bftrain.NodesLeft(time_s=20.0, nodes=("n2",)),
):
    print(type(event).__name__, *harvester.handle(event))
