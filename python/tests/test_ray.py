"""A sweep on a Ray cluster of four workers, one of which dies midway. Skipped without Ray."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import fulcrum
from fulcrum import sweeps

ray = pytest.importorskip("ray")

SMALL = {
    "machine": "rtx4090-desktop",
    "model": "opt-125m",
    "workload": {"batch": 1, "prompt_tokens": 64, "output_tokens": 8},
}
VALUES = {"workload.batch": list(range(1, 25))}


def test_a_lost_worker_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fulcrum.sweep(SMALL, VALUES)
    died = tmp_path / "died"

    def dies_once(*arguments: Any) -> Any:
        if arguments[3] == 1 and not died.exists():
            died.write_text("once")
            os.kill(os.getpid(), signal.SIGKILL)
        return sweeps.run_shard(*arguments)

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        class Deadly(fulcrum.RayExecutor):
            def submit(self, task: Any, /, *arguments: Any) -> Any:
                return super().submit(dies_once, *arguments)

        parts = fulcrum.sweep(SMALL, VALUES, executor=Deadly(num_cpus=1), shards=8)
    finally:
        ray.shutdown()
    assert died.exists() and parts.csv == whole.csv and parts.counts["ok"] == 24
