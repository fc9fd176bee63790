"""Sweeps: every scenario of a grid, on this machine or on many."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fulcrum import _fulcrum
from fulcrum.scenarios import Scenario, ScenarioLike
from fulcrum.tables import Table


class Answer(Protocol):
    """What an executor promises."""

    def result(self) -> Any: ...


class SweepExecutor(Protocol):
    """An executor of ``concurrent.futures``, a Dask client, a submitit executor, a
    :class:`RayExecutor`."""

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Answer: ...


@dataclass(frozen=True)
class SweepTable(Table):
    """The rows of a sweep, with the bytes of its table."""

    csv: bytes = field(repr=False, default=b"")
    counts: dict[str, Any] = field(default_factory=dict)

    def best(self, column: str, *, most: bool = False) -> dict[str, Any]:
        """The row with the least of a column, or with the most."""
        rows = [row for row in self.rows() if isinstance(row.get(column), (int, float))]
        if not rows:
            raise _fulcrum.InputError(f"no row has a number in {column}: the columns are {', '.join(self.columns)}")
        choose = max if most else min
        return choose(rows, key=lambda row: row[column])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the table as ``fulcrum sweep -o`` does."""
        Path(path).write_bytes(self.csv)

    def plots(self) -> dict[str, str]:
        """The plots of the table's report page, as SVG by name."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sweep.csv"
            self.save(path)
            return dict(_fulcrum.plots([path]))

    def _repr_html_(self) -> str:
        return super()._repr_html_() + "".join(self.plots().values())


def sweep(
    scenario: ScenarioLike,
    values: Mapping[str, Sequence[Any]],
    *,
    executor: SweepExecutor | None = None,
    shards: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    search: bool = False,
) -> SweepTable:
    """Plans and simulates every combination of ``values``, a row each.

    Points are planned without the search that :func:`plan` ends with; ``search`` adds it, at a tenth of
    the speed.

    ``values`` has a list for each dotted path; a key with a comma, ``"workload.batch,dtype"``, has
    a list of rows and changes both together. With an ``executor``, each of ``shards`` parts is one
    task of it, and the table is the same to the byte. A shard's task is a function of a module and
    takes texts only, so that processes, Dask, Slurm's submitit and Ray can run it.

    >>> table = sweep({"machine": "rtx4090-desktop", "model": "opt-125m",
    ...                "workload": {"prompt_tokens": 64, "output_tokens": 8}},
    ...               {"workload.batch": [1, 4]})
    >>> table["status"]
    ['ok', 'ok']
    """
    it = Scenario.of(scenario)
    axes = json.dumps([_axis(key, list(steps)) for key, steps in values.items()], allow_nan=False)
    count = shards if shards is not None else 1 if executor is None else 4
    if count < 1:
        raise _fulcrum.InputError(f"shards is {count}: one at least is wanted")
    folder = None if cache is None else os.fspath(cache)
    tasks = [(it.text, it.name, axes, index, count, folder, search) for index in range(count)]
    if executor is None:
        parts = [run_shard(*task) for task in tasks]
    else:
        futures = [executor.submit(run_shard, *task) for task in tasks]
        parts = [future.result() for future in futures]
    counts: dict[str, Any] = {}
    for _, part in parts:
        counts |= {status: counts.get(status, 0) + rows for status, rows in part.items()}
    table = parts[0][0][""] if len(parts) == 1 else _merged([files for files, _ in parts])
    return SweepTable(Table.from_csv(table.decode()).columns, table, counts)


def run_shard(
    text: str, name: str, axes: str, index: int, of: int, cache: str | None, search: bool = False
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """One shard of a sweep: its table and the files beside it, by what their names end in, and the
    statuses of its rows."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "shard.csv"
        counts = json.loads(_fulcrum.sweep(text, name, (axes, search), (index, of), cache, out))
        files = {path.name.removeprefix(out.name): path.read_bytes() for path in Path(folder).iterdir()}
        return files, counts


class RayExecutor:
    """Runs shards as Ray tasks. A task whose worker or machine is lost is run again.

    ``ray.init()`` has to have been called. ``options`` go to the task, like ``num_cpus=2``.
    """

    def __init__(self, **options: Any) -> None:
        self._options: dict[str, Any] = {"max_retries": -1, **options}

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        import ray

        remote = ray.remote(task).options(**self._options)
        future: Future[Any] = remote.remote(*arguments).future()
        return future


def _axis(key: str, steps: list[Any]) -> list[Any]:
    keys = [part.strip() for part in key.split(",")]
    if not steps:
        raise _fulcrum.InputError(f"{key}: one value at least is wanted")
    if len(keys) == 1:
        return [keys, [[step] for step in steps]]
    for step in steps:
        if not isinstance(step, (list, tuple)) or len(step) != len(keys):
            raise _fulcrum.InputError(f"{key}: {step!r} is no row of {len(keys)} values")
    return [keys, [list(step) for step in steps]]


def _merged(parts: list[dict[str, bytes]]) -> bytes:
    """The table of the whole sweep."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index, files in enumerate(parts):
            for ending, content in files.items():
                (folder / f"{index}.csv{ending}").write_bytes(content)
        whole = folder / "whole.csv"
        _fulcrum.merge_shards([folder / f"{index}.csv" for index in range(len(parts))], whole)
        return whole.read_bytes()
