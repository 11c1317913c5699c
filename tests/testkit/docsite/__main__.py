"""Builds the documentation site: `python -m testkit.docsite FOLDER` (`make docs`).

The documents are put together in FOLDER.sources, then Sphinx makes the pages.  Every warning ends the build: a link or
an anchor that leads nowhere, a page outside the navigation, a reference to a name that has no page.  So does a diagram
that mermaid does not understand, which would be found only in a reader's browser.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from testkit.docsite.assemble import Assembly
from testkit.docsite.environment import MERMAID


def build(folder: Path) -> int:
    """Build the site into a folder, which is emptied before; return the exit code."""
    sources = folder.with_name(f"{folder.name}.sources")
    assembly = Assembly(sources)
    assembly.write()
    faults = faulty_diagrams(assembly.diagrams)
    if faults:
        print(faults, end="", file=sys.stderr)
        return 1
    return make_pages(sources, folder)


def faulty_diagrams(diagrams: dict[str, str]) -> str:
    """Return a line for each diagram that mermaid does not understand, with its document, line and fault."""
    node = ["node", str(Path(__file__).with_name("diagrams.cjs")), str(MERMAID / "mermaid.tiny.js")]
    return subprocess.run(node, input=json.dumps(diagrams), text=True, check=True, stdout=subprocess.PIPE).stdout


def make_pages(sources: Path, folder: Path) -> int:
    """Make the pages of a folder of sources; return the exit code."""
    os.environ.pop("GANTRY_COMPILED", None)
    os.environ["GANTRY_PURE"] = "1"  # this environment compiles nothing
    shutil.rmtree(folder, ignore_errors=True)
    strict = ["--fail-on-warning", "--nitpicky", "--quiet", "--fresh-env", "--jobs", "auto"]
    places = ["--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(sources / ".doctrees")]
    return sphinx([*strict, *places, str(sources), str(folder)])


if __name__ == "__main__":
    target = Path(sys.argv[1])
    code = build(target)
    if not code:
        print(f"open {target}/index.html")
    sys.exit(code)
