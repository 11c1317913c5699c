"""How a command ends when something went wrong: one line that says what, and what to do about it; and the exit code.

Errors of ours carry a text made to be read by a person, so it is shown as it is.  Anything else is a bug
and keeps its traceback.  Ctrl-C and a reader that went away (`| head`) are no errors to speak of.  The exit codes are
documented in `main`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from gantry.errors import ConfigError, GantryError, OutcomeUnknownError, RefusedError, UnreachableError

FAILED = 1
USAGE = 2
NO_ANSWER = 3
INTERRUPTED = 130


def report(work: Callable[[], int]) -> int:
    """Do the work; its exit code, or the one that fits what it raised."""
    try:
        return work()
    except ConfigError as error:
        _say(str(error))
        return USAGE
    except UnreachableError as error:
        _say(f"{error}; is it running, and is --namesrv right?")
        return NO_ANSWER
    except RefusedError as error:
        _say(f"refused with code {error.code}: {error.remark}")
    except OutcomeUnknownError as error:
        _say(f"{error}; it may have been carried out or not")
        return NO_ANSWER
    except GantryError as error:
        _say(str(error))
    except BrokenPipeError:
        # Python would complain once more while it flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return INTERRUPTED
    return FAILED


def _say(text: str) -> None:
    print(f"gantry: {text}", file=sys.stderr)
