"""How a command reports errors: one line on stderr with what to do, and the exit code.

The text of a GantryError is written for users and is printed unchanged.  Any other exception is a bug and keeps its
traceback.  Ctrl-C and a closed pipe (`| head`) print nothing.  The exit codes are documented in `main`.
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
    """Run `work` and return its exit code, or the one for the exception that it raised."""
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
        # Python would print another error when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return INTERRUPTED
    return FAILED


def _say(text: str) -> None:
    print(f"gantry: {text}", file=sys.stderr)
