"""Scenarios: dictionaries, YAML texts and files."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from fulcrum._fulcrum import InputError

ScenarioLike = Union["Scenario", Mapping[str, Any], str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Scenario:
    """A scenario's text, and the name by which messages call it.

    >>> small = Scenario.of({"machine": "l4", "model": "opt-125m"})
    >>> small.with_values({"workload.batch": 4}).text
    '{"machine": "l4", "model": "opt-125m", "workload": {"batch": 4}}'
    """

    text: str
    name: str = "scenario"

    @staticmethod
    def of(scenario: ScenarioLike) -> Scenario:
        """The scenario of a dictionary, of YAML text, or of a file.

        A text with a line break or a brace is YAML; any other text is a path.
        """
        if isinstance(scenario, Scenario):
            return scenario
        if isinstance(scenario, Mapping):
            return Scenario(_json(scenario))
        if isinstance(scenario, str) and ("\n" in scenario or "{" in scenario):
            return Scenario(scenario)
        if not isinstance(scenario, (str, os.PathLike)):
            raise TypeError(
                f"a scenario is a dictionary, YAML text or the path of a file, not {type(scenario).__name__}"
            )
        path = Path(scenario)
        try:
            return Scenario(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: {error}") from error

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Scenario:
        """The scenario of a YAML file; its relative paths start at the file's folder."""
        return Scenario.of(Path(path))

    def with_values(self, values: Mapping[str, Any]) -> Scenario:
        """The same scenario with other values at dotted paths. The text has to be JSON, as that of a
        dictionary is; for YAML, write the values into it."""
        try:
            document = json.loads(self.text)
        except json.JSONDecodeError as error:
            raise InputError(f"{self.name} is YAML: values are set in a dictionary's scenario") from error
        document = copy.deepcopy(document)
        for path, value in values.items():
            *way, last = path.split(".")
            here = document
            for step in way:
                here = here.setdefault(step, {})
                if not isinstance(here, dict):
                    raise InputError(f"{path}: {step} has no keys")
            here[last] = value
        return Scenario(_json(document), self.name)


def _json(document: Mapping[str, Any]) -> str:
    def plain(value: object) -> object:
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise TypeError(f"a scenario holds numbers, texts, lists and dictionaries, not {type(value).__name__}")

    return json.dumps(document, default=plain, allow_nan=False)
