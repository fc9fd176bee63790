"""Machines and models by name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from fulcrum import _fulcrum
from fulcrum.tables import Table


@dataclass(frozen=True)
class Machine:
    """A machine: a shipped one, a file, or ``this`` where it was measured.

    >>> Machine.named("h100-sxm").name
    'h100-sxm'
    """

    name: str
    fingerprint: str
    facts: Any = field(repr=False)

    @staticmethod
    def named(name: str) -> Machine:
        return Machine(**json.loads(_fulcrum.machine(name)))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "fingerprint": self.fingerprint, "facts": self.facts}


@dataclass(frozen=True)
class Model:
    """A model: a preset, a ``config.json``, a folder with one, or a GGUF file.

    >>> Model.named("llama-3.1-8b").layers
    32
    """

    name: str
    layers: int
    parameters: int
    active_parameters: int
    numbers: dict[str, Any] = field(repr=False)

    @staticmethod
    def named(name: str) -> Model:
        it = json.loads(_fulcrum.model(name))
        return Model(it["name"], it["layers"], it["parameters"], it["active_parameters"], it)

    def to_dict(self) -> dict[str, Any]:
        return self.numbers


def machines() -> Table:
    """The shipped machines and parts.

    >>> "h100-sxm" in machines()["name"]
    True
    """
    rows = json.loads(_fulcrum.machines())
    return Table({key: [row[key] for row in rows] for key in ("name", "kind", "summary")})


def models() -> list[str]:
    """The names of the model presets.

    >>> "llama-3.1-8b" in models()
    True
    """
    return _fulcrum.models()
