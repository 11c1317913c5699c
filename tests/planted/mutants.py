"""The planted faults of tests/planted.txt: reading the list, and putting one of them into a copy of the source.

    [name of the fault]
    why: what would be lost in production if nobody noticed
    file: the source file, from the repository's root
    test: the pytest node that must go red
    - lines that stand there now, exactly once, one per line of source
    + lines that stand there instead

Lines keep their indentation behind the two marks; `#` at the margin begins a comment.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "planted.txt"


class Mutant(NamedTuple):
    """One planted fault."""

    name: str
    why: str
    file: str
    test: str
    old: str
    new: str

    def fits(self, root: Path = ROOT) -> bool:
        """Whether the text to be replaced stands in the source exactly once."""
        path = root / self.file
        return path.exists() and path.read_text().count(self.old) == 1

    def plant(self, root: Path) -> None:
        """Change the copy of the source below root."""
        assert self.fits(root), f"{self.name}: its text does not stand exactly once in {self.file}"
        path = root / self.file
        path.write_text(path.read_text().replace(self.old, self.new))


def load(path: Path = LIST) -> list[Mutant]:
    """All of them, in the order of the list."""
    blocks: list[list[str]] = []
    for line in path.read_text().splitlines():
        if line.startswith("["):
            blocks.append([line])
        elif line.strip() and not line.startswith("#"):
            blocks[-1].append(line)
    return [_mutant(block) for block in blocks]


def _mutant(block: list[str]) -> Mutant:
    fields = dict(line.split(": ", 1) for line in block[1:] if line[:2] not in ("- ", "+ ", "-", "+"))
    old = [line[2:] for line in block if line[:1] == "-"]
    new = [line[2:] for line in block if line[:1] == "+"]
    assert old and set(fields) == {"why", "file", "test"}, f"{block[0]}: expected why, file, test and - lines"
    # Whole lines: the replacement begins behind a line break and ends before one.
    return Mutant(block[0].strip("[]"), fields["why"], fields["file"], fields["test"], _lines(old), _lines(new))


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
