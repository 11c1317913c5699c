"""`make docs` builds the site without a warning, nothing in it comes from another host, and errors end it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from testkit.sources import ROOT

pytestmark = pytest.mark.slow

# What a browser loads by itself; a link that a reader follows may lead anywhere.
_LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\"")
_LOADED_BY_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)")
_FAULTS = {
    "a link to a page that is not there": ("[a](gone.md)", "gone"),
    "a link to an anchor that is not there": ("[a](#gone)", "gone"),
    "a reference to a name without a page": ("{py:class}`gantry.client.Gone`", "gantry.client.Gone"),
    "a page outside the navigation": (None, "toctree"),
}


def _in_the_environment(code: str) -> subprocess.CompletedProcess[str]:
    return _command("env", f"PYTHONPATH={ROOT / 'tests'}", ".venv-docs/bin/python", "-c", code)


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="module")
def site() -> Path:
    done = _command("make", "--silent", "docs")
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr[-4000:]
    return ROOT / "build/site"


def test_the_site_is_whole_and_loads_nothing_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert {"index.html", "broker/docs/failover.html", "api/gantry.client.html"} <= {
        str(page.relative_to(site)) for page in pages
    }
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    foreign = {str(page): found for page, text in texts.items() if (found := _LOADED.findall(text))}
    styles = {str(each): _LOADED_BY_STYLE.findall(each.read_text(encoding="utf-8")) for each in site.rglob("*.css")}
    assert not foreign and not {path: found for path, found in styles.items() if found}
    assert 'id="gantry.client.Producer.send"' in texts[site / "api/gantry.client.html"]


def test_pages_with_a_diagram_bring_what_draws_it(site: Path) -> None:
    drawn = [page for page in site.rglob("*.html") if '<pre class="mermaid">' in page.read_text(encoding="utf-8")]
    assert site / "index.html" in drawn
    assert all("mermaid.tiny.js" in page.read_text(encoding="utf-8") for page in drawn)
    assert (site / "_static/mermaid.tiny.js").stat().st_size > 1_000_000


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_fault_ends_the_build(site: Path, tmp_path: Path, fault: str) -> None:
    text, said = _FAULTS[fault]
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "index.md").write_text(f"# Home\n\n{text or ''}\n")
    if text is None:
        (sources / "alone.md").write_text("# Alone\n")
    code = f"from testkit.docsite.__main__ import make_pages; from pathlib import Path; p = Path({str(tmp_path)!r}); "
    done = _in_the_environment(f"{code}raise SystemExit(make_pages(p / 'sources', p / 'site'))")
    assert done.returncode != 0 and said in done.stderr, done.stderr[-4000:]


def test_a_diagram_that_mermaid_does_not_understand_is_named(site: Path) -> None:
    diagrams = {"good.md:3": "stateDiagram-v2\n  [*] --> half: send", "bad.md:7": "flowchart LR\n  a -->>> b[["}
    done = _in_the_environment(
        f"from testkit.docsite.__main__ import faulty_diagrams; print(faulty_diagrams({diagrams!r}))"
    )
    assert done.stdout.startswith("bad.md:7: Parse error on line 2") and "good.md" not in done.stdout, done.stderr
