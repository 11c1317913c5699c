"""`gantry store verify DIR`: is every record whole, and does its queue lead to it?

For a broker that is not running: its lock is taken for as long as the files are read.  Nothing is changed.
Exit code 0 when all is well, 1 when something is damaged.
"""

from __future__ import annotations

import argparse
import os
import sys

from gantry.cli.output import Row, add_output, show, show_json, show_one
from gantry.errors import ConfigError
from gantry.store import filenames
from gantry.store.disk import RealDisk
from gantry.store.verify import Report, verify

_MIB = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """The subcommand and its folder."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    checking = commands.add_parser("verify", help="read every record and every queue entry; change nothing")
    checking.add_argument("folder", metavar="DIR", help="the folder of the store, as given to --data")
    add_output(checking)


def run(arguments: argparse.Namespace) -> int:
    """Read it all, say what was found."""
    root = os.path.abspath(os.path.expanduser(arguments.folder))
    if not os.path.isdir(filenames.commit_log(root)):
        raise ConfigError(f"{root} is no store: it has no commitlog folder")
    lock = RealDisk().lock(filenames.lock(root))
    try:
        report = _read(root)
    finally:
        lock.release()
    _say(report, arguments.output)
    return 1 if report.fault_count else 0


def _read(root: str) -> Report:
    report = Report()
    progress = sys.stderr.isatty()
    for report in verify(RealDisk(writable=False), root):
        if progress:
            print(f"\r{report.records} records, {report.bytes // _MIB} MiB", end="", file=sys.stderr)
    if progress:
        print("\r\x1b[K", end="", file=sys.stderr)
    return report


def _say(report: Report, output: str) -> None:
    row: Row = {
        "segments": report.segments,
        "records": report.records,
        "queue_entries": report.entries,
        "without_queue": report.without_queue,
        "unfinished": report.unfinished,
        "stopped_in_order": not report.was_killed,
        "tail_to_cut": report.tail or None,
        "faults": report.fault_count,
    }
    topics: list[Row] = [{"topic": topic, "messages": count} for topic, count in report.by_topic.most_common()]
    if output == "json":
        show_json({**row, "topics": topics, "damaged": list(report.faults)})
        return
    show_one(row, output)
    if topics:
        print()
        show(topics, output)
    for fault in report.faults:
        print(f"damaged: {fault}", file=sys.stderr)
