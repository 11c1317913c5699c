"""The page of all configuration keys, made from their declarations.

`python -m testkit.configuration --write` (make readme) puts the tables into broker/docs/configuration.md, between
`<!-- generated: keys -->` and `<!-- end -->`; tests/tidy/test_readme.py fails when they are behind the code.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Mapping

from gantry.broker.settings import brokerconf
from gantry.broker.settings.config import BrokerConfig
from gantry.cli.watched import CoordinatorSettings, OfAGroup
from gantry.model.keys import DeclaredKey, as_written, table
from gantry.nameserver.settings import RUNTIME_KEYS, Switches
from testkit.sources import ROOT

PAGE = ROOT / "broker/docs/configuration.md"
_BLOCK = re.compile(r"(<!-- generated: keys -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = "| key | default | value | what it does | in a broker.conf |\n|-|-|-|-|-|"

_HEAD_OF_OTHERS = "| key | default | value | what it does |\n|-|-|-|-|"


def rendered(text: str) -> str:
    """The page's text with its generated part as the code has it now."""
    return _BLOCK.sub(lambda match: match[1] + "\n" + "\n".join(_sections()) + "\n" + match[2], text)


def _sections() -> Iterator[str]:
    yield from _section("", BrokerConfig)
    for each in dataclasses.fields(BrokerConfig):
        if isinstance(each.default_factory, type):
            yield from _section(each.name, each.default_factory)
    yield "# Keys of `gantry coordinator`\n\nIn the file of `--config`, and as flags with `--` before them.\n"
    for tree, title in (
        (CoordinatorSettings, "At the top of the file"), (OfAGroup, "Below `groups.NAME`, or at the top for all")
    ):
        yield f"## {title}\n\n{inspect.getdoc(tree)}\n\n{_HEAD_OF_OTHERS}"
        for key, entry in table(tree).items():
            yield _row(key.replace("_", "-"), entry)
        yield ""
    yield f"# Switches of a name server\n\nTools change them while it runs (318).\n\n{_HEAD_OF_OTHERS}"
    for theirs, ours in RUNTIME_KEYS.items():
        yield _row(theirs, table(Switches)[ours])
    yield ""


def _section(name: str, tree: type) -> Iterator[str]:
    keys = {key: entry for key, entry in table(tree).items() if "." not in key}
    yield f"## {f'`{name}`' if name else 'Without a section'}\n\n{inspect.getdoc(tree)}\n\n{_HEAD}"
    prefix = f"{name}." if name else ""
    names = _theirs()
    for key, entry in keys.items():
        yield _row(key, entry, names.get(prefix + key, ""))
    yield ""


def _row(key: str, entry: DeclaredKey, *more: str) -> str:
    hot = " Can change while the broker runs." if entry.key.is_hot else ""
    return f"| {' | '.join((f'`{key}`', _default(entry), entry.expected, entry.key.text + hot, *more))} |"


def _default(entry: DeclaredKey) -> str:
    text = as_written(entry)
    return f"`{text}`" if text else "empty"


def _theirs() -> Mapping[str, str]:
    """Our key -> RocketMQ's names, newest last, with the unit where it is another one."""
    found: dict[str, list[str]] = {}
    for name, translation in brokerconf.KEYS.items():
        unit = f" ({translation.unit})" if translation.unit else ""
        found.setdefault(translation.key, []).append(f"`{name}`{unit}")
    return {key: ", ".join(names) for key, names in found.items()}


def main(arguments: list[str]) -> int:
    """Write the page, or say that it is behind the code."""
    text = PAGE.read_text(encoding="utf-8")
    new = rendered(text)
    if new != text and "--write" in arguments:
        PAGE.write_text(new, encoding="utf-8")
    return 1 if new != text and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
