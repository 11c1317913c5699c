"""Log lines go to stderr, as plain text or as one JSON object a line.

Servers log little: start, end, changes of state, and each cause of refused work once a minute.  Message bodies, keys
and secrets are never logged.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

_LEVELS = ("debug", "info", "warning", "error")


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Add the flags --log-format and --log-level."""
    parser.add_argument(
        "--log-format", choices=("plain", "json"), default="plain", help="log lines on stderr (default: %(default)s)"
    )
    parser.add_argument("--log-level", choices=_LEVELS, default="info", help="how much to log (default: %(default)s)")


def start_logging(arguments: argparse.Namespace) -> None:
    """Send the lines of every logger to stderr, in the configured form."""
    handler = logging.StreamHandler(sys.stderr)
    if arguments.log_format == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(arguments.log_level.upper())


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: milliseconds since the epoch, level, logger, message, stack if there
    is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
