"""Reading a large JSON object in slices, so that a loop is free in between.

The text is read member by member along one path of names, and what lies beside the path in one piece.  A text that is
not standard JSON is read by `bodies.loads`, in one piece, which also says what is wrong with it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator, Sequence

from gantry.wire import bodies

_MEMBERS_AT_ONCE = 200  # some 5 us each
_space = re.compile(r"[ \t\r\n]*").match

Steps = Generator[None, None, dict[str, object]]


def load_in_slices(body: bytes, path: Sequence[str]) -> Steps:
    """Return the object that the body is, in slices between the members of the object at `path`.

    MalformedBodyError when it is no JSON object.
    """
    try:
        text = str(body, "utf-8")
        found, end = yield from _read_object(text, _skip_space(text, 0), path)
        if _skip_space(text, end) == len(text):
            return found
    except (ValueError, RecursionError):
        pass
    return bodies.loads_object(body)


def _read_object(text: str, at: int, path: Sequence[str]) -> Generator[None, None, tuple[dict[str, object], int]]:
    """Return the object that begins there, and where it ends; ValueError when it is none."""
    found: dict[str, object] = {}
    at = _skip_mark(text, at, "{")
    if text.startswith("}", at):
        return found, at + 1
    for number in itertools.count(1):  # not of those found: a name may come again and again
        start = at
        key, at = bodies.DECODER.raw_decode(text, start)
        bodies.check(key, text, start, at)
        if not isinstance(key, str):
            raise ValueError("a key that is no string")
        at = _skip_mark(text, _skip_space(text, at), ":")
        if path and key == path[0]:
            found[key], at = yield from _read_object(text, at, path[1:])
        else:
            start = at
            found[key], at = bodies.DECODER.raw_decode(text, start)
            bodies.check(found[key], text, start, at)
        if number % _MEMBERS_AT_ONCE == 0:
            yield
        at = _skip_space(text, at)
        if text.startswith("}", at):
            return found, at + 1
        at = _skip_mark(text, at, ",")
    raise AssertionError("the count has no end")


def _skip_space(text: str, at: int) -> int:
    match = _space(text, at)
    assert match is not None, "it matches nothing too"
    return match.end()


def _skip_mark(text: str, at: int, mark: str) -> int:
    """Return where the next thing begins behind a mark that has to stand there."""
    if not text.startswith(mark, at):
        raise ValueError(f"no {mark} at {at}")
    return _skip_space(text, at + 1)
