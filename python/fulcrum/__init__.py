"""Fulcrum plans, predicts and explains hybrid CPU-GPU inference of large language models.

>>> import fulcrum
>>> plan = fulcrum.plan({
...     "machine": "rtx4090-desktop",
...     "model": "llama-3.1-8b",
...     "workload": {"batch": 1, "prompt_tokens": 256, "output_tokens": 32},
... })
>>> plan.fits_on
('hbm',)
>>> plan.tpot_s < 0.05
True

A scenario is a dictionary, a :class:`Scenario`, the path of a YAML file, or YAML text. Times are in
seconds, sizes in bytes. What is wrong with an input raises :class:`InputError`; where nothing fits,
:class:`InfeasibleError` is raised.
"""

from fulcrum._fulcrum import (
    FulcrumError,
    InfeasibleError,
    InputError,
    RunError,
    __version__,
)
from fulcrum.machines import Machine, Model, machines, models
from fulcrum.plans import Export, Explanation, Plan, plan, read_plan
from fulcrum.questions import (
    Capacity,
    Prediction,
    Simulation,
    Validation,
    capacity,
    predict,
    simulate,
    validate,
)
from fulcrum.scenarios import Scenario, ScenarioLike
from fulcrum.sweeps import RayExecutor, SweepTable, sweep
from fulcrum.tables import Table

__all__ = [
    "Capacity",
    "Explanation",
    "Export",
    "FulcrumError",
    "InfeasibleError",
    "InputError",
    "Machine",
    "Model",
    "Plan",
    "Prediction",
    "RayExecutor",
    "RunError",
    "Scenario",
    "ScenarioLike",
    "Simulation",
    "SweepTable",
    "Table",
    "Validation",
    "__version__",
    "capacity",
    "machines",
    "models",
    "plan",
    "predict",
    "read_plan",
    "simulate",
    "sweep",
    "validate",
]
