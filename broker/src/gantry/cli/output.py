"""Results for people and for programs: the same rows as a table or as JSON.

A command passes rows (dictionaries with the same keys).  The table shows the keys as headings, numbers aligned to the
right, and times unchanged.  JSON is one array, or one object where there is only one thing to print, so that `| jq`
works without a flag.
"""

from __future__ import annotations

import argparse
import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]

_GAP = "  "


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the flag --output table|json."""
    parser.add_argument(
        "--output", choices=("table", "json"), default="table", help="how to print (default: %(default)s)"
    )


def show(rows: Sequence[Row], output: str, empty: str = "nothing to show") -> None:
    """Print the rows; `empty` is printed on stderr when there are none."""
    if output == "json":
        show_json([dict(row) for row in rows])
    elif rows:
        print("\n".join(table(rows)))
    else:
        print(empty, file=sys.stderr)


def show_one(row: Row, output: str) -> None:
    """Print one thing: a line for each of its keys."""
    if output == "json":
        show_json(dict(row))
        return
    width = max((len(key) for key in row), default=0)
    for key, value in row.items():
        print(f"{key:<{width}}{_GAP}{_text(value)}")


def say_done(kind: str, name: str, result: str, output: str) -> None:
    """Print the result for one thing: `topic/tea created`, or {"topic": "tea", "result": "created"}."""
    if output == "json":
        show_json({kind: name, "result": result})
    else:
        print(f"{kind}/{name} {result}")


def show_json(document: object) -> None:
    """Print a document as JSON."""
    json.dump(document, sys.stdout, ensure_ascii=False, indent=2)
    print()


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table; its columns are the first row's keys."""
    columns = list(rows[0])
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    widths = [max(_width(column), *(_width(line[at]) for line in cells)) for at, column in enumerate(columns)]
    right = [all(isinstance(row.get(column), (int, float)) for row in rows) for column in columns]
    lines = [[column.upper() for column in columns], *cells]
    return [_GAP.join(_pad(cell, widths[at], right[at]) for at, cell in enumerate(line)).rstrip() for line in lines]


def _text(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value)


def _width(text: str) -> int:
    """Return the number of terminal columns: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _pad(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - _width(text))
    return blanks + text if right else text + blanks
