"""The tables of values in the charts' READMEs, made from values.yaml as helm-docs makes them.

`python -m testkit.chartreadme --write` (make readme) puts them between `<!-- generated: values -->` and `<!-- end -->`;
tests/tidy/test_readme.py fails when they are behind.  A comment that begins with `# --` describes the value on the line
below it.  A block is a row of its own if it has a description, and one value if nothing below it has one.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from testkit.sources import ROOT

CHARTS = tuple(ROOT / "charts" / name for name in ("gantrymq", "gantrymq-cluster"))
_BLOCK = re.compile(r"(<!-- generated: values -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = "| value | type | default | what it does |\n|-|-|-|-|"
_ICON = re.compile(r"^icon: .*$", re.MULTILINE)
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


class Value(NamedTuple):
    """One value of a chart; without a default where it is a block of others."""

    path: str
    kind: str
    default: str
    description: str


def values(text: str) -> Iterator[Value]:
    """Of a values.yaml, in its order."""
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    yield from _below(root, text.splitlines(), "")


def _below(mapping: yaml.MappingNode, lines: list[str], prefix: str) -> Iterator[Value]:
    for key, node in mapping.value:
        path, told = f"{prefix}{key.value}", _comment_above(lines, key.start_mark.line)
        parts = list(_below(node, lines, f"{path}.")) if isinstance(node, yaml.MappingNode) else []
        if any(each.description for each in parts) or (parts and not told):
            if told:
                yield Value(path, "object", "", told)
            yield from parts
        else:
            kind = {"map": "object", "seq": "list"}.get(tag := node.tag.rpartition(":")[2], _TYPES.get(tag, "string"))
            yield Value(path, kind, json.dumps(yaml.safe_load(yaml.serialize(node))), told)


def _comment_above(lines: list[str], at: int) -> str:
    """The description of the value on a line; empty where there is none."""
    found: list[str] = []
    for line in reversed(lines[:at]):
        text = line.strip()
        if not text.startswith("#"):
            break
        found.insert(0, text.lstrip("# "))
        if text.startswith("# -- "):
            return " ".join(found).removeprefix("-- ")
    return ""


def rendered(chart: Path) -> str:
    """README.md of a chart with its table as values.yaml has it now."""
    rows = [
        f"| `{each.path}` | {each.kind} | {f'`{each.default}`' if each.default else ''} | {each.description} |"
        for each in values((chart / "values.yaml").read_text(encoding="utf-8"))
    ]
    text = (chart / "README.md").read_text(encoding="utf-8")
    return _BLOCK.sub(lambda match: match[1] + "\n".join([_HEAD, *rows]) + "\n" + match[2], text)


def with_icon(chart: Path) -> str:
    """Chart.yaml with the icon of the charts in it: a chart that is not published anywhere has no address for one."""
    icon = base64.b64encode((CHARTS[0] / "icon.svg").read_bytes()).decode()
    return _ICON.sub(f"icon: data:image/svg+xml;base64,{icon}", (chart / "Chart.yaml").read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    """Write both, or say which are behind."""
    behind = []
    for chart in CHARTS:
        for name, new in (("README.md", rendered(chart)), ("Chart.yaml", with_icon(chart))):
            path = chart / name
            if path.read_text(encoding="utf-8") != new:
                behind.append(path.relative_to(ROOT).as_posix())
                if "--write" in arguments:
                    path.write_text(new, encoding="utf-8")
    print("\n".join(behind))
    return 1 if behind and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
