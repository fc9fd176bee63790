"""What a call from Python costs beside the call itself: `python scripts/python_overhead.py`."""

import json
import statistics
import time

import fulcrum
from fulcrum import _fulcrum

SCENARIO = {
    "machine": "rtx4090-desktop",
    "model": "opt-125m",
    "workload": {"batch": 1, "prompt_tokens": 64, "output_tokens": 8},
}


def median(task: object, runs: int = 300) -> float:
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        task()  # type: ignore[operator]
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


handle = _fulcrum.plan(json.dumps(SCENARIO), "scenario")
whole = median(lambda: fulcrum.plan(SCENARIO), 30)
_fulcrum.plan = lambda *_: handle  # type: ignore[assignment]
around = median(lambda: fulcrum.plan(SCENARIO))
print(f"plan: {1e3 * whole:.2f} ms from Python, {1e3 * around:.3f} ms of it around the planner")
