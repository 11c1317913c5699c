"""`gantry store verify DIR` checks every record and queue entry; `gantry store clean` deletes expired segments now.

`verify` is for a broker that is not running: it holds the store's lock while it reads the files.  It changes nothing.
The exit code is 0 when all is well, 1 when something is damaged.

`clean` asks running brokers to delete expired segments now, instead of at the configured hour; --dry-run only lists
them.  It deletes only what retention would delete by itself: no younger segment, and none that is still needed.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime

from gantry.cli.clientflags import add_client_flags, run_client
from gantry.cli.output import Row, add_output, show, show_json, show_one
from gantry.client.admin import Admin
from gantry.client.requests.store_requests import RetentionInfo, SegmentInfo
from gantry.errors import ConfigError, GantryError
from gantry.store import filenames
from gantry.store.disk import RealDisk
from gantry.store.verify import Report, verify

_MIB = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    checking = commands.add_parser("verify", help="read every record and every queue entry; change nothing")
    checking.add_argument("folder", metavar="DIR", help="the folder of the store, as given to --data")
    add_output(checking)
    cleaning = commands.add_parser("clean", help="have messages deleted that are old enough, whatever the hour")
    cleaning.add_argument("--dry-run", action="store_true", help="only show what would go")
    cleaning.add_argument("--broker", metavar="NAME", help="only there")
    add_client_flags(cleaning)
    add_output(cleaning)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    return run_client(_clean(arguments)) if arguments.command == "clean" else _verify(arguments)


async def _clean(arguments: argparse.Namespace) -> int:
    async with Admin(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as admin:
        found = [one for one in await admin.retention() if arguments.broker in (None, one.broker)]
        if not found:
            raise GantryError(f"no broker {arguments.broker} is registered; gantry cluster list shows what there is")
        show(
            [_segment(one, each) for one in found for each in one.segments],
            arguments.output,
            empty="no segment can go: the one that is written to always stays",
        )
        going = sum(each.goes for one in found for each in one.segments)
        for one in found:
            print(f"gantry: {one.broker}: the disk is {one.disk_used:.0%} full", file=sys.stderr)
        if not arguments.dry_run:
            await admin.delete_expired(arguments.broker)
            print(f"gantry: {going} segments are being deleted", file=sys.stderr)
    return 0


def _segment(one: RetentionInfo, each: SegmentInfo) -> Row:
    written = datetime.fromtimestamp(each.last_written_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    return {
        "broker": one.broker,
        "segment": each.start,
        "bytes": each.bytes,
        "last_written": written,
        "expired": each.expired,
        "goes": each.goes,
        "owed": each.owed,
    }


def _verify(arguments: argparse.Namespace) -> int:
    """Read the whole store and print what was found. Return the exit code."""
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
