"""Converting columns of foreign messages so that PostgreSQL can store them.

A text of PostgreSQL has no NUL, an index no text of some kilobytes, an INTEGER no number above 2^31, and a body is not
always text.  A message that breaks such a rule must not end a job that reads many: it is kept with what can be kept.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

ID_CHARACTERS_MAX = 255  # of an id that the sink can send again, and that an index can hold
NUMBER_MAX = 1_000_000
_NUL, _REPLACEMENT = "\\x00", "\ufffd"


def storable(text: Column) -> Column:
    """Return the text with each NUL replaced by U+FFFD."""
    return f.regexp_replace(text, _NUL, _REPLACEMENT)


def without_nul(text: str) -> str:
    """Return a Python text with each NUL replaced by U+FFFD."""
    return text.replace("\0", _REPLACEMENT)


def identifier(text: Column) -> Column:
    """Return the text for an index; the SHA-256 of one that is too long or has a NUL, so that it stays unique."""
    is_good = (f.length(text) <= ID_CHARACTERS_MAX) & ~text.rlike(_NUL)
    return f.when(text.isNull() | is_good, text).otherwise(f.sha2(text.cast("binary"), 256))


def count(text: Column) -> Column:
    """Return the small number that a property holds; 0 for anything else."""
    number = text.try_cast("bigint")
    return f.when(number.between(0, NUMBER_MAX), number).otherwise(f.lit(0)).cast("int")


def json_or_null(body: Column) -> Column:
    """Return the body as JSON; null where it is not UTF-8 or not JSON."""
    return f.get_json_object(f.try_validate_utf8(body.cast("string")), "$")
