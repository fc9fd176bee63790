"""Simulations, capacities, predictions, validations."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fulcrum import _fulcrum
from fulcrum.scenarios import Scenario, ScenarioLike
from fulcrum.tables import Table, html_table


@dataclass(frozen=True)
class Simulation:
    """What a simulated run came to. ``kind`` is ``static``, ``served`` or ``training``."""

    kind: str
    numbers: Mapping[str, Any] = field(repr=False)

    @property
    def ttft_s(self) -> float:
        """Time to the first token; its mean over requests that come and go."""
        return self._time("ttft_s")

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first; its mean likewise."""
        return self._time("tpot_s")

    @property
    def output_tokens_per_s(self) -> float:
        return float(self.numbers["output_tokens_per_s"])

    def _time(self, name: str) -> float:
        it = self.numbers[name]
        return float(it["mean"] if isinstance(it, Mapping) else it)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.numbers}

    def _repr_html_(self) -> str:
        flat = [[name, it] for name, it in self.numbers.items() if isinstance(it, (int, float, str))]
        spread = [(name, it) for name, it in self.numbers.items() if isinstance(it, Mapping) and "p50" in it]
        parts = [[name, *(it[share] for share in ("mean", "p50", "p90", "p99"))] for name, it in spread]
        tables = html_table(["", "mean", "p50", "p90", "p99"], parts) if parts else ""
        return tables + html_table(["", "value"], flat)


@dataclass(frozen=True)
class Capacity:
    """Which machines serve a load, how many of each, and what they cost."""

    answer: list[str]
    machines: list[dict[str, Any]] = field(repr=False)
    document: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return self.document

    def table(self) -> Table:
        """A row for each machine: how many, their cost in dollars, and the largest load of one."""
        rows: dict[str, list[Any]] = {"machine": [], "machines": [], "total_cost_usd": [], "largest_load": []}
        for it in self.machines:
            found = it.get("result") or it
            rows["machine"].append(it["name"])
            for column, key in (("machines", "machines"), ("total_cost_usd", "total_cost"), ("largest_load", "largest_load")):
                rows[column].append((found.get(key) or {}).get("value"))
        return Table(rows)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{line}</p>" for line in self.answer) + self.table()._repr_html_()


@dataclass(frozen=True)
class Prediction:
    """Predicted times of operators, and how far they are from the measured ones."""

    table: Table = field(repr=False)
    errors: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.table.to_dict(), "errors": self.errors}

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


@dataclass(frozen=True)
class Validation:
    """Plans that were run for real, beside their predictions."""

    document: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return self.document


def simulate(
    scenario: ScenarioLike, *, draw_experts: bool = False, draw_acceptance: bool = False, seed: int = 0
) -> Simulation:
    """Plans a scenario and simulates its run: a static batch, or requests that come and go.

    >>> run = simulate({"machine": "h100-sxm", "model": "llama-3.2-1b", "engine": "vllm",
    ...                 "workload": {"concurrency": 4, "requests": 20, "prompt_tokens": 64,
    ...                              "output_tokens": 8}})
    >>> run.kind, run.numbers["requests"]["completed"]
    ('served', 20)
    """
    it = Scenario.of(scenario)
    answer = json.loads(_fulcrum.simulate(it.text, it.name, draw_experts, draw_acceptance, seed))
    return Simulation(answer["kind"], answer["numbers"])


def capacity(scenario: ScenarioLike) -> Capacity:
    """Which machine serves the load of a scenario within its limits, how many, at what cost."""
    it = Scenario.of(scenario)
    document = json.loads(_fulcrum.capacity(it.text, it.name))
    return Capacity(document["answer"], document["machines"], document)


def predict(
    operators: str | os.PathLike[str], machine: str | None = None, device: str | None = None
) -> Prediction:
    """Predicts each row of a CSV file of operators: matrix products (dtype,m,n,k) or attention
    (phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim)."""
    rows, errors = _fulcrum.predict(operators, machine, device)
    return Prediction(Table.from_csv(rows), json.loads(errors))


def validate(
    plans: Sequence[str | os.PathLike[str]], model_dir: str | os.PathLike[str], *, repeats: int = 3
) -> Validation:
    """Runs plans for real on the model in a folder, and compares with their predictions."""
    if repeats < 1:
        raise _fulcrum.InputError(f"repeats is {repeats}: one at least is wanted")
    return Validation(json.loads(_fulcrum.validate([Path(it) for it in plans], model_dir, repeats)))
