"""Everything that a document gives a reader to type is typed by a test, or marked as not typed.

A line is typed where a test reads all lines of its kind from its document (TYPED), or where it stands as it is in a
test.  Anything else needs the mark `<!-- not typed: WHY -->` before its block, which says why.
"""

from __future__ import annotations

import re
import shlex
from functools import cache

import pytest

from testkit.commandline import PARSERS
from testkit.sources import ROOT, python_files
from testkit.typed import Typed, documents, read

# (document, kind) -> the test that reads all of them and does what they say.
TYPED = {
    ("README.md", "gantry"): "tests/scenarios/test_readme_lines.py",
    ("README.md", "python"): "tests/scenarios/test_readme.py",
    ("README.md", "java"): "tests/interop/test_java_programs.py",
    ("README.md", "helm"): "tests/e2e/test_quickstart.py",
    ("README.md", "kubectl"): "tests/e2e/test_quickstart.py",
    ("broker/docs/local.md", "gantry"): "tests/scenarios/test_readme_lines.py",
    ("broker/docs/queues.md", "sh"): "tests/scenarios/test_http_queues_document.py",
    ("broker/docs/redelivery.md", "gantry"): "tests/scenarios/test_dead_letters.py",
    ("broker/docs/client.md", "python"): "tests/scenarios/test_client_examples.py",
    ("broker/docs/proxy.md", "python"): "tests/interop/test_sdk_documents.py",
    ("broker/docs/proxy.md", "java"): "tests/interop/test_sdk_documents.py",
    ("broker/docs/guarantee.md", "sql"): "tests/unit/guarantee/test_schema.py",
    ("broker/docs/transaction-queue.md", "python"): "tests/scenarios/test_transaction_queue_examples.py",
    ("broker/docs/transaction-queue.md", "sql"): "tests/unit/mns/test_document.py",
    ("spark/README.md", "python"): "tests/spark/test_readme.py",
    ("spark/README.md", "pip"): "tests/spark/test_newcomer.py",
    ("spark/README.md", "python3"): "tests/spark/test_newcomer.py",
    ("spark/README.md", "gantry"): "tests/spark/test_newcomer.py",
}
# Where a test knows so many of them, and would not see another one.
COUNTED = {
    ("README.md", "python"): 2,
    ("README.md", "java"): 1,
    ("broker/docs/guarantee.md", "sql"): 2,
    ("broker/docs/proxy.md", "python"): 1,
    ("broker/docs/proxy.md", "java"): 1,
    ("broker/docs/transaction-queue.md", "python"): 2,
    ("broker/docs/transaction-queue.md", "sql"): 1,
    ("spark/README.md", "python"): 2,
    ("spark/README.md", "pip"): 2,
    ("spark/README.md", "gantry"): 2,
}
# The same lines in Chinese, which tests/tidy/test_readme.py compares.
TRANSLATED = {"README.zh-CN.md"}


@cache
def _tests() -> str:
    paths = [path for path in python_files("tests") if not path.startswith(("tests/tidy/", "tests/testkit/typed"))]
    return re.sub(r"\s+", " ", "\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths))


def _is_typed(one: Typed) -> bool:
    # `make ...` stands in many tests, as a remark.
    return one.is_marked or (one.document, one.kind) in TYPED or (one.kind != "make" and one.text in _tests())


@pytest.mark.parametrize("document", [path for path in documents() if path not in TRANSLATED])
def test_what_a_document_gives_to_type_is_typed_or_says_why_not(document: str) -> None:
    left = [f"{one.kind}: {one.text.splitlines()[0][:90]}" for one in read(document) if not _is_typed(one)]
    assert not left, f"{document}: no test types this; write one, or put <!-- not typed: WHY --> before it: {left}"


def test_a_test_that_types_a_document_reads_it() -> None:
    for (document, kind), test in TYPED.items():
        count = sum(one.kind == kind and not one.is_marked for one in read(document))
        assert count == COUNTED.get((document, kind), count or 1), f"{count} of {kind} in {document}, see {test}"
        text = (ROOT / test).read_text(encoding="utf-8")
        assert document.rpartition("/")[2] in text or "README" in text, f"{test} does not read {document}"


def test_a_line_of_ours_in_a_document_is_one_that_the_program_takes() -> None:
    """Also those that no test types, but for forms with brackets, which are no lines."""
    for document in documents():
        for one in read(document):
            if one.kind != "gantry" or "[" in one.text:
                continue
            words = shlex.split(one.text.removesuffix("&"))
            name = " ".join(words[1:3]) if " ".join(words[1:3]) in PARSERS else words[1]
            assert name in PARSERS, f"{document}: {one.text}"
            try:
                PARSERS[name].parse_args(words[1 + len(name.split(" ")) :])
            except SystemExit:
                pytest.fail(f"{document}: the program does not take: {one.text}")
