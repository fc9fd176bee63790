"""Tables of results, as columns."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Cell = float | int | str | bool | None


@dataclass(frozen=True)
class Table:
    """Columns of equal length, in order.

    >>> table = Table.from_csv("point,status,ttft_s\\n0,ok,0.5\\n1,infeasible,\\n")
    >>> table["ttft_s"], len(table)
    ([0.5, None], 2)
    >>> table.rows()[1]
    {'point': 1, 'status': 'infeasible', 'ttft_s': None}
    """

    columns: dict[str, list[Cell]]

    @staticmethod
    def from_csv(text: str) -> Table:
        """A table of CSV text; empty cells are None, numbers are numbers where a whole column is."""
        lines = csv.reader(io.StringIO(text))
        header = next(lines, [])
        rows = [row for row in lines if row]
        cells = {name: [row[at] for row in rows] for at, name in enumerate(header)}
        return Table({name: _typed(column) for name, column in cells.items()})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __getitem__(self, name: str) -> list[Cell]:
        return self.columns[name]

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return iter(self.rows())

    def rows(self) -> list[dict[str, Cell]]:
        """A dictionary for each row."""
        names = list(self.columns)
        return [dict(zip(names, row)) for row in zip(*self.columns.values())]

    def to_dict(self) -> dict[str, list[Cell]]:
        """The columns by name."""
        return {name: list(column) for name, column in self.columns.items()}

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``."""
        import pyarrow

        return pyarrow.table(self.columns)

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame``."""
        import pandas

        return pandas.DataFrame(self.columns)

    def to_polars(self) -> Any:
        """A ``polars.DataFrame``."""
        import polars

        return polars.DataFrame(self.columns)

    def _repr_html_(self) -> str:
        return html_table(list(self.columns), [list(row.values()) for row in self.rows()[:50]])


def _typed(column: Sequence[str]) -> list[Cell]:
    """Whole numbers, numbers or texts, whichever holds the whole column."""
    for read in (int, float):
        try:
            return [read(cell) if cell else None for cell in column]
        except ValueError:
            continue
    return [cell or None for cell in column]


def html_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for a notebook."""

    def shown(cell: object) -> str:
        if cell is None:
            return ""
        return html.escape(f"{cell:.4g}" if isinstance(cell, float) else str(cell))

    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{shown(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
