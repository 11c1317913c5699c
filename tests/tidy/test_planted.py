"""Every planted fault still fits the source, so that `make planted` tests what it says."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("mutants", _ROOT / "tests" / "planted" / "mutants.py")
assert _SPEC is not None and _SPEC.loader is not None
mutants = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(mutants)

_ALL = mutants.load()


def test_there_are_at_least_ten_and_each_has_its_own_name() -> None:
    assert len(_ALL) >= 10
    assert len({mutant.name for mutant in _ALL}) == len(_ALL)


def test_a_planted_fault_fits_the_source_exactly_once() -> None:
    wrong = [mutant for mutant in _ALL if not mutant.fits()]
    assert not wrong, "\n".join(f"{one.name}: {one.file} does not hold exactly once:\n{one.old}" for one in wrong)


def test_a_planted_fault_can_be_imported_since_one_that_cannot_proves_nothing() -> None:
    for mutant in _ALL:
        source = (_ROOT / mutant.file).read_text().replace(mutant.old, mutant.new)
        try:
            ast.parse(source)
        except SyntaxError as error:
            raise AssertionError(f"{mutant.name}: {mutant.file} line {error.lineno}: {error.msg}") from error


def test_the_test_that_kills_a_planted_fault_exists() -> None:
    for mutant in _ALL:
        path, _, name = mutant.test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (_ROOT / path).read_text(), f"{mutant.name}: {mutant.test}"
