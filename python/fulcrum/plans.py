"""Plans."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fulcrum import _fulcrum
from fulcrum.questions import Simulation
from fulcrum.scenarios import Scenario, ScenarioLike
from fulcrum.tables import html_table


@dataclass(frozen=True)
class Times:
    """Time to the first token, and between tokens after it; None where there is one token."""

    ttft_s: float
    tpot_s: float | None


@dataclass(frozen=True)
class MemoryUse:
    """Bytes in one memory."""

    weights: int
    kv: int
    activations: int
    staging: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.activations + self.staging


@dataclass(frozen=True)
class Explanation:
    """What binds a plan, and what more of each resource would bring."""

    text: str
    numbers: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return self.numbers

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Export:
    """A plan as another engine's options."""

    engine: str
    command: str
    files: dict[str, str]
    cannot: list[str]
    nearest: Times

    def to_dict(self) -> dict[str, Any]:
        times = {"ttft_s": self.nearest.ttft_s, "tpot_s": self.nearest.tpot_s}
        return {
            "engine": self.engine,
            "command": self.command,
            "files": dict(self.files),
            "cannot": list(self.cannot),
            "nearest": times,
        }


class Plan:
    """Where each layer runs, where weights and KV cache live, and what that takes."""

    def __init__(self, handle: _fulcrum.PlanHandle) -> None:
        self._handle = handle
        self._summary: dict[str, Any] = json.loads(handle.summary())

    @property
    def machine(self) -> str:
        return str(self._summary["machine"])

    @property
    def model(self) -> str:
        return str(self._summary["model"])

    @property
    def formats(self) -> str:
        """Number formats of weights, KV cache and activations."""
        return str(self._summary["formats"])

    @property
    def chosen(self) -> str:
        """``planned``, or the simple rule that nothing beats."""
        return str(self._summary["chosen"])

    @property
    def ttft_s(self) -> float:
        """Predicted time to the first token."""
        return float(self._summary["ttft_s"])

    @property
    def tpot_s(self) -> float | None:
        """Predicted time per output token after the first."""
        tpot = self._summary["tpot_s"]
        return None if tpot is None else float(tpot)

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Output tokens per second of the whole batch, after the first ones."""
        rate = self._summary["decode_tokens_per_s"]
        return None if rate is None else float(rate)

    @property
    def energy_per_token_j(self) -> float | None:
        """Joules of all devices for an output token; None where the power of a device is unknown."""
        energy = self._summary["energy_per_token_j"]
        return None if energy is None else float(energy)

    @property
    def cost_per_token_usd(self) -> float | None:
        """Dollars for an output token; None where prices are unknown."""
        cost = self._summary["cost_per_token_usd"]
        return None if cost is None else float(cost)

    @property
    def memory(self) -> dict[str, MemoryUse]:
        """Exact bytes by memory."""
        uses = self._summary["memory"].items()
        return {name: MemoryUse(**{use: int(size) for use, size in it.items()}) for name, it in uses}

    @property
    def fits_on(self) -> tuple[str, ...]:
        """The memories that hold something, the fullest first."""
        held = sorted(self.memory.items(), key=lambda it: -it[1].total)
        return tuple(name for name, use in held if use.total > 0)

    @property
    def rules(self) -> dict[str, Times]:
        """What the simple rules would take."""
        return {name: Times(**times) for name, times in self._summary["rules"].items()}

    @property
    def bound(self) -> Times:
        """The roofline of this placement."""
        return Times(**self._summary["bound"])

    def simulate(
        self, *, draw_experts: bool = False, draw_acceptance: bool = False, seed: int = 0
    ) -> Simulation:
        """The simulated run, with contention and overlap."""
        rates = self._handle.simulate(draw_experts, draw_acceptance, seed)
        return Simulation("static", json.loads(rates))

    def explain(self) -> Explanation:
        """What binds, what the rules would do, and what more of each resource would bring."""
        numbers, text = self._handle.explain()
        return Explanation(text, json.loads(numbers))

    def export(self, engine: str) -> Export:
        """The options with which another engine runs this plan, or the nearest to it."""
        it = json.loads(self._handle.export(engine))
        nearest = Times(it["nearest"]["ttft_s"], it["nearest"]["tpot_s"])
        return Export(it["engine"], it["command"], it["files"], it["cannot"], nearest)

    def to_dict(self) -> dict[str, Any]:
        """The plan's document."""
        document: dict[str, Any] = json.loads(self._handle.to_json())
        return document

    def to_yaml(self) -> str:
        """The plan as ``fulcrum plan -o`` writes it."""
        return self._handle.to_yaml()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan's YAML."""
        Path(path).write_text(self.to_yaml(), encoding="utf-8")

    def plots(self) -> dict[str, str]:
        """The plots of the plan's report page, as SVG by name."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.yaml"
            self.save(path)
            return dict(_fulcrum.plots([path]))

    def __repr__(self) -> str:
        speed = f", TPOT {1e3 * self.tpot_s:.4g} ms" if self.tpot_s is not None else ""
        return (
            f"<Plan of {self.model} on {self.machine}: {self.chosen}, "
            f"TTFT {1e3 * self.ttft_s:.4g} ms{speed}>"
        )

    def _repr_html_(self) -> str:
        def row(name: str, times: Times) -> list[object]:
            tpot = times.tpot_s
            return [name, 1e3 * times.ttft_s, None if tpot is None else 1e3 * tpot, tpot and 1 / tpot]

        rows = [row(f"this plan ({self.chosen})", Times(self.ttft_s, self.tpot_s))]
        rows += [row(name, times) for name, times in self.rules.items()]
        table = html_table(["", "TTFT, ms", "TPOT, ms", "steps/s"], rows)
        title = f"<p><b>{self.model} on {self.machine}</b>, {self.formats}</p>"
        return title + table + "".join(self.plots().values())


def plan(scenario: ScenarioLike) -> Plan:
    """The best plan of a scenario.

    >>> plan({"machine": "h100-sxm", "model": "opt-125m",
    ...       "workload": {"batch": 1, "prompt_tokens": 8, "output_tokens": 2}}).machine
    'h100-sxm'
    """
    it = Scenario.of(scenario)
    return Plan(_fulcrum.plan(it.text, it.name))


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file."""
    return Plan(_fulcrum.read_plan(path))
