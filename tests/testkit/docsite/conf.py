"""Sphinx's configuration of the documentation site; `make docs` calls it (testkit.docsite.__main__).

Nothing is loaded from another host, at build time or by a reader's browser: the theme brings its fonts and scripts, and
mermaid comes out of the environment (requirements/docs).
"""

from __future__ import annotations

import builtins
import html
import importlib
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import gantry.errors
from testkit.docsite import docstrings, navigation
from testkit.docsite.environment import MERMAID
from testkit.sources import ROOT

HERE = Path(__file__).resolve().parent

project = "GantryMQ"
version = tomllib.loads((ROOT / "broker/pyproject.toml").read_text(encoding="utf-8"))["project"].get("version", "")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
nitpicky = True
highlight_language = "text"
html_theme = "pydata_sphinx_theme"
html_title = "GantryMQ"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_static_path = [str(HERE / "static"), str(MERMAID)]
html_css_files = ["site.css"]
html_theme_options = {
    "header_links_before_dropdown": len(navigation.SECTIONS),
    "navigation_depth": 3,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
    "navbar_align": "left",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}

myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]
myst_links_external_new_tab = False

autodoc_mock_imports = ["pyspark", "pyarrow", "numpy"]
autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries = False

_LINKED = {
    **{name: f"gantry.client.{name}" for names in navigation.CLIENT.values() for name in names},
    **{name: f"pyspark_gantrymq.{name}" for name in navigation.SPARK},
    **{name: f"gantry.errors.{name}" for name in vars(gantry.errors) if name.endswith(("Error", "Refusal"))},
}


class Mermaid(SphinxDirective):
    """A diagram; mermaid draws it in the reader's browser."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the diagram's text where static/diagrams.js looks for it."""
        self.env.metadata[self.env.docname]["diagrams"] = "yes"
        text = html.escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">{text}</pre>', format="html")]


def load_mermaid(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Load mermaid's 2.5 MB on pages that have a diagram, and on no other."""
    if app.env.metadata.get(page, {}).get("diagrams"):
        app.add_js_file("mermaid.tiny.js", loading_method="defer")
        app.add_js_file("diagrams.js", loading_method="defer")


def convert_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Give autodoc our plain docstrings, and the comments of fields, as reStructuredText."""
    if what == "attribute":
        owner, _, field = name.rpartition(".")
        lines[:] = docstrings.field_comments(_object(owner)).get(field, "").splitlines() or lines
        if lines[:1] and lines[0].startswith("Alias for field number"):
            lines.clear()
    lines[:] = docstrings.as_rst(lines, _LINKED.get)


def readable_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, arguments: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Write `...` for a default that a factory makes: `<factory>` is no Python, and the line would break at commas."""
    return (arguments.replace("<factory>", "..."), returns) if arguments and "<factory>" in arguments else None


def leave_as_text(app: Sphinx, env: Any, node: nodes.Element, shown: nodes.Node) -> nodes.Node | None:
    """Show types that have no page here (the standard library's, Spark's, inner ones) without a link.

    That holds for signatures and bases.  What a text refers to must have a page, and is reported otherwise.
    """
    parent = node.parent
    while parent is not None and not isinstance(parent, addnodes.desc_signature):
        parent = parent.parent
    return shown if parent is not None or hasattr(builtins, str(node.get("reftarget"))) else None


def _object(name: str) -> type:
    """Return the class with a full name."""
    module, _, rest = name.rpartition(".")
    found = getattr(importlib.import_module(module), rest)
    assert isinstance(found, type), name
    return found


def setup(app: Sphinx) -> None:
    """Register what is ours."""
    app.add_directive("mermaid", Mermaid)
    app.connect("autodoc-process-docstring", convert_docstring)
    app.connect("autodoc-process-signature", readable_signature)
    app.connect("html-page-context", load_mermaid)
    app.connect("missing-reference", leave_as_text)
