"""Pages made from the code: of requests (which function answers each, what is not supported), and of metrics.

`python -m testkit.readme --write` (make readme) puts the tables into their places, between `<!-- generated: NAME -->`
and `<!-- end -->`; tests/tidy/test_readme.py fails when they are not what the code says.

The tables are asked, not parsed: the router's table is built around handlers that were never initialised, and every
function in it knows its own file.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

from gantry.broker import assemble, pops
from gantry.broker.metrics import exposition
from gantry.broker.requests.activity import ALSO_WITHOUT_LEASE, BY_EVERY_MEMBER
from gantry.broker.requests.handlers import Handlers
from gantry.broker.requests.router import table
from gantry.nameserver.handlers import NameServerHandlers
from gantry.pop import parts as pop_parts
from gantry.transaction import batch_handlers
from gantry.wire.codes import SERVER_TO_CLIENT, UNSUPPORTED, RequestCode
from testkit.sources import ROOT, SOURCE

READMES = ("README.md", "README.zh-CN.md")
PAGE = "broker/docs/requests.md"
METRICS_PAGE = "broker/docs/metrics.md"
_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEADS = {
    "requests": "| code | request | served by | file and function |",
    "unsupported": "| what is missing, and what to do meanwhile | codes |",
}
# What the router sends to these in runs, and not one by one through its table.
_HOT = {
    RequestCode.SEND_MESSAGE: ("gantry/produce/send.py", "Sending.send_run"),
    RequestCode.SEND_MESSAGE_V2: ("gantry/produce/send.py", "Sending.send_run"),
    RequestCode.SEND_BATCH_MESSAGE: ("gantry/produce/send.py", "Sending.send_run"),
    RequestCode.PULL_MESSAGE: ("gantry/consume/handlers.py", "PullHandlers.pull_run"),
    RequestCode.LITE_PULL_MESSAGE: ("gantry/consume/handlers.py", "PullHandlers.pull_run"),
    RequestCode.END_TRANSACTION: ("gantry/transaction/ends.py", "Ends.end_run"),
}


def rendered(text: str) -> str:
    """Return the page with its tables as the code has them now."""

    def replace(match: re.Match[str]) -> str:
        name = match[2]
        rows = {"requests": _request_rows, "unsupported": _unsupported_rows}[name]()
        head = _HEADS[name]
        rule = "|" + "-|" * (head.count("|") - 1)
        return match[1] + "\n".join([head, rule, *rows]) + "\n" + match[3]

    return _BLOCK.sub(replace, text)


def with_metrics(text: str) -> str:
    """Return the page of metrics with its table as the code has it now."""
    begin, end = text.index("| metric |"), text.rindex("|\n") + 2
    return text[:begin] + exposition.document() + text[end:]


def handlers() -> dict[tuple[str, int], tuple[str, str]]:
    """(server, code) -> (file, function) of everything that is answered."""
    names = {**vars(batch_handlers), **vars(pop_parts), **vars(pops), **vars(assemble)}
    hints = get_type_hints(Handlers, localns=names)
    made = {field.name: _uninitialised(hints[field.name]) for field in fields(Handlers)}
    found: dict[tuple[str, int], tuple[str, str]] = {}
    for code, handler in table(Handlers(**made)).items():
        found["broker", int(code)] = _HOT.get(RequestCode(code)) or _place(handler)
    name_server = object.__new__(NameServerHandlers)
    for code, handler in name_server._table_of_codes().items():
        found["name server", int(code)] = _place(handler)
    return found


def _uninitialised(kind: object) -> object:
    return object.__new__(kind) if isinstance(kind, type) else (lambda: None)


def _place(handler: Callable[..., object]) -> tuple[str, str]:
    """The file and the name of the function behind a bound method, or behind one that is wrapped in another."""
    while not inspect.ismethod(handler):
        inner = inspect.getclosurevars(handler).nonlocals
        wrapped = [one for one in inner.values() if inspect.ismethod(one)] or [inner["handler"]]
        assert wrapped, f"{handler} is no method of a handler, and wraps none"
        handler = wrapped[0]
    path = Path(inspect.getsourcefile(handler.__func__) or "").resolve().relative_to(SOURCE)
    return path.as_posix(), handler.__qualname__


def _request_rows() -> list[str]:
    rows = []
    for (server, code), (path, name) in sorted(handlers().items(), key=lambda item: item[0]):
        link = f"[{path.removeprefix('gantry/')}](../src/{path})"
        function = name.rpartition(".")[2].lstrip("_")
        who = _who(RequestCode(code)) if server == "broker" else server
        rows.append(f"| {code} | {RequestCode(code).name} | {who} | {link} `{function}` |")
    return rows


def _who(code: RequestCode) -> str:
    if code in ALSO_WITHOUT_LEASE:
        return "every member, also without a lease"
    return "every member" if code in BY_EVERY_MEMBER else "master"


def _unsupported_rows() -> list[str]:
    served = {code for _, code in handlers()} | SERVER_TO_CLIENT
    by_remark: dict[str, list[str]] = defaultdict(list)
    for code, remark in sorted(UNSUPPORTED.items()):
        if code not in served:
            by_remark[remark].append(f"{RequestCode(code).name} ({int(code)})")
    return [f"| {remark} | {', '.join(codes)} |" for remark, codes in sorted(by_remark.items())]


def main(arguments: list[str]) -> int:
    """Write the pages, or name those that are behind the code."""
    behind = 0
    for page, render in ((PAGE, rendered), (METRICS_PAGE, with_metrics)):
        text = (ROOT / page).read_text(encoding="utf-8")
        new = render(text)
        if new != text and "--write" in arguments:
            (ROOT / page).write_text(new, encoding="utf-8")
        elif new != text:
            print(f"{page} is behind the code; make readme")
            behind = 1
    return behind


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
