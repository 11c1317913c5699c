"""`gantry cluster list|info`: the registered brokers, and the runtime figures of one broker."""

from __future__ import annotations

import argparse

from gantry.cli.clientflags import add_client_flags, run_client
from gantry.cli.output import Row, add_output, show, show_one
from gantry.client.admin import Admin
from gantry.errors import GantryError, OutcomeUnknownError, UnreachableError


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    commands.add_parser("list", help="clusters, broker groups and their members, and whether they answer")
    info = commands.add_parser("info", help="the runtime figures of one broker, under RocketMQ's names")
    info.add_argument("broker", metavar="HOST:PORT|NAME", help="its address, or its group's name for the master")
    for each in commands.choices.values():
        add_client_flags(each)
        add_output(each)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return the exit code."""
    return run_client(_run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with Admin(nameserver=arguments.namesrv, timeout_s=arguments.timeout) as admin:
        if arguments.command == "list":
            show(await _brokers(admin), arguments.output, empty="no broker is registered")
        else:
            show_one(await admin.runtime_info(await _address(admin, arguments.broker)), arguments.output)
    return 0


async def _brokers(admin: Admin) -> list[Row]:
    known = await admin.cluster()
    rows: list[Row] = []
    for cluster, groups in sorted(known.clusters.items()):
        for group in sorted(groups):
            for number, address in sorted(known.groups[group].addresses.items()):
                try:
                    info = await admin.runtime_info(address)
                except (UnreachableError, OutcomeUnknownError):
                    info = {}
                rows.append(
                    {
                        "cluster": cluster,
                        "broker": group,
                        "id": number,
                        "address": address,
                        "answers": bool(info),
                        "version": info.get("brokerVersionDesc"),
                        "put_per_s": _per_s(info.get("putTps")),
                        "get_per_s": _per_s(info.get("getTransferredTps")),
                    }
                )
    return rows


def _per_s(text: str | None) -> float | None:
    """Return the first of RocketMQ's three averages (over 10 s, one minute, ten minutes); None when there is none."""
    try:
        return float((text or "").split(" ")[0])
    except ValueError:
        return None


async def _address(admin: Admin, broker: str) -> str:
    if ":" in broker:
        return broker
    group = (await admin.cluster()).groups.get(broker)
    if group is None or group.master is None:
        raise GantryError(f"{broker}: no such broker group with a master; gantry cluster list shows what there is")
    return group.master
