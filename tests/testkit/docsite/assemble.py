"""Put the documents of the repository together as the sources of the site, in a folder that git ignores.

A document keeps its path, so that links between documents stay as they are; only the home page becomes `index.md`.
Rewritten are

- links to files and folders that are no documents: each such file gets a page with its text;
- names of documents in backticks (`store.md`): they become links;
- the languages of fenced blocks that only our own tests know: they become plain text.

A link that leads nowhere, or to a heading that is not there, raises BrokenLinkError with its document and line.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from functools import cache
from pathlib import Path

import gantry.client
from testkit.docsite import docstrings, navigation
from testkit.docsite.navigation import API, CLIENT, HOME, SPARK
from testkit.sources import ROOT, tracked_files

SHOWN = "files"  # folder of the pages that show a file of the repository
_LANGUAGES = {"python", "java", "sql", "sh", "bash", "yaml", "json", "toml", "mermaid"}
_OF_SUFFIX = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sql": "sql", ".java": "java"}
_FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*(\S*)(.*)$")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_NAMED = re.compile(r"(?<![\[`\w])`([\w./-]+\.md)`(?![`\w])")
_OUTSIDE = re.compile(r"[a-z][a-z+.-]*:")
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$", re.MULTILINE)
_BLOCKS = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)


class BrokenLinkError(Exception):
    """A document links to something that is not in the repository."""


class Assembly:
    """One assembly into a folder; its files are written by `write`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._documents = frozenset(navigation.documents())
        self._files = frozenset(tracked_files())
        self._folders = frozenset(str(parent) for path in self._files for parent in Path(path).parents)
        self._shown: set[str] = set()
        self.diagrams: dict[str, str] = {}  # by document and line

    def write(self) -> None:
        """Write all pages: documents, sections, the API, and the files that documents link to."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for path in navigation.documents():
            text = self.rewritten(path, (ROOT / path).read_text(encoding="utf-8"))
            self._put(_place(path), text + _tree_of_sections() if path == HOME else text)
        for section in navigation.SECTIONS:
            self._put(f"{section.name}.md", _section_page(section))
        for name, text in _api_pages().items():
            self._put(f"{API}/{name}.rst", text)
        for path in sorted(self._shown):
            self._put(f"{SHOWN}/{path}.md", self._shown_page(path))

    def rewritten(self, document: str, text: str) -> str:
        """Return a document's text as the site needs it; BrokenLinkError for a link that leads nowhere."""
        lines: list[str] = []
        fence, diagram = "", 0
        for number, line in enumerate(text.splitlines(), 1):
            found = _FENCE.match(line)
            if fence:
                if found and found[2].startswith(fence) and not found[3]:
                    fence = ""
                    if diagram:
                        self.diagrams[f"{document}:{diagram}"] = "\n".join(lines[diagram:])
            elif found:
                fence = found[2]
                diagram = number if found[3] == "mermaid" else 0
                language = found[3] if found[3] in _LANGUAGES else "text"
                line = f"{found[1]}{found[2]}{language}"
            elif not line.startswith("    "):
                line = _NAMED.sub(lambda match: self._link_of_name(document, match), line)
                line = _LINK.sub(lambda match: f"]({self._target(document, match[1], number)})", line)  # noqa: B023
            lines.append(line)
        return "\n".join(lines) + "\n"

    def _link_of_name(self, document: str, match: re.Match[str]) -> str:
        """Return the name of a document with a link to it; what names no other document stays as it is."""
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(document), match[1]))
        named = {path for path in self._documents if path.endswith(f"/{match[1]}")}
        for path in (beside, match[1], *(named if len(named) == 1 else ())):
            if path in self._documents:
                return match[0] if path == document else f"[{match[0]}]({_relative(document, path)})"
        return match[0]

    def _target(self, document: str, target: str, line: int) -> str:
        """Return where a link of a document leads in the site."""
        if _OUTSIDE.match(target):
            return target
        path, _, anchor = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(document), path)) if path else document
        if wanted in self._documents:
            if anchor and anchor not in _anchors(wanted):
                raise BrokenLinkError(f"{document}:{line}: {target} names a heading that {wanted} does not have")
            return (_relative(document, wanted) if path else "") + (f"#{anchor}" if anchor else "")
        if wanted not in self._files and wanted not in self._folders:
            raise BrokenLinkError(f"{document}:{line}: {target} leads nowhere")
        self._show(wanted)
        return _relative(document, f"{SHOWN}/{wanted}.md")

    def _show(self, path: str) -> None:
        self._shown.add(path)
        if path in self._folders:
            self._shown.update(self._files_in(path))

    def _files_in(self, folder: str) -> list[str]:
        return sorted(path for path in self._files if posixpath.dirname(path) == folder)

    def _shown_page(self, path: str) -> str:
        head = f"---\norphan: true\nnosearch: true\n---\n\n# `{path}`\n\n"
        if path in self._folders:
            return head + "".join(f"- [{each}](/{SHOWN}/{each}.md)\n" for each in self._files_in(path))
        text = (ROOT / path).read_text(encoding="utf-8")
        return f"{head}````````{_OF_SUFFIX.get(Path(path).suffix, 'text')}\n{text}````````\n"

    def _put(self, place: str, text: str) -> None:
        path = self._folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@cache
def _anchors(document: str) -> frozenset[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    text = _BLOCKS.sub("", (ROOT / document).read_text(encoding="utf-8"))
    found: list[str] = []
    for heading in _HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return frozenset(found)


def _place(document: str) -> str:
    """Return where a document stands in the site's sources."""
    return "index.md" if document == HOME else document


def _relative(document: str, place: str) -> str:
    return os.path.relpath(_place(place), posixpath.dirname(document) or ".")


def _tree(entries: list[str], *options: str) -> str:
    return "\n".join(["", "```{toctree}", *options, "", *entries, "```", ""])


def _tree_of_sections() -> str:
    return _tree([section.name for section in navigation.SECTIONS], ":hidden:")


def _section_page(section: navigation.Section) -> str:
    entries = []
    for page in section.pages:
        name = page.path.removesuffix(".md")
        entries.append(f"{page.title} </{name}>" if page.title else f"/{name}")
    return f"# {section.title}\n\n{section.lead}\n{_tree(entries, ':maxdepth: 1')}"


def _api_pages() -> dict[str, str]:
    """Return the pages of the API by module: instructions for autodoc, which reads the docstrings."""
    client = [*_heading("gantry.client", "="), ".. automodule:: gantry.client", "   :no-members:", ""]
    for group, names in CLIENT.items():
        client += _heading(group, "-")
        for name in names:
            bare = ", ".join(docstrings.bare_fields(getattr(gantry.client, name)))
            client += [*_heading(name, "~"), f".. autoclass:: gantry.client.{name}"]
            client += [f"   :exclude-members: {bare}", ""] if bare else [""]
    errors = [*_heading("gantry.errors", "="), ".. automodule:: gantry.errors", "   :show-inheritance:", ""]
    spark = [*_heading("pyspark_gantrymq", "="), ".. automodule:: pyspark_gantrymq", "   :no-members:", ""]
    for name in SPARK:
        spark += [*_heading(name, "-"), f".. autoclass:: pyspark_gantrymq.{name}", ""]
    pages = {"gantry.client": client, "gantry.errors": errors, "pyspark_gantrymq": spark}
    return {name: "\n".join(lines) + "\n" for name, lines in pages.items()}


def _heading(text: str, underline: str) -> list[str]:
    return [text, underline * len(text), ""]
