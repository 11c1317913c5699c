"""The entry point of `gantry`: finds the command and runs its module.

`gantry --help` needs only the table below, so that it answers quickly.  The module of a command is imported when the
command is called, and has two functions:

    configure(parser)   adds its arguments
    run(arguments)      runs the command and returns the exit code

Exit codes, for scripts:

    0    done
    1    refused, or not found, or damage was found; trying again does not help
    2    the command line or the configuration is invalid; no request was sent
    3    a name server or broker could not be reached, or did not answer: the request may have been carried out
    130  interrupted

An error is one line on stderr; stdout has results only.  A command that created, changed or deleted something prints
that there: `topic/tea created`.
"""

from __future__ import annotations

import argparse
import importlib
import sys

# In the order in which a new user needs them.
COMMANDS = {
    "standalone": "name server and broker in one process, on one folder",
    "nameserver": "a name server",
    "broker": "a broker",
    "proxy": "RocketMQ 5's gRPC protocol in front of a cluster",
    "queues": "queues over HTTP in the manner of MNS, in front of a cluster",
    "coordinator": "watch groups, and have another member lead when a master is gone",
    "local": "a cluster of several processes on this machine, for trying failover out",
    "produce": "send messages",
    "consume": "receive messages",
    "topic": "list, create, delete and look into topics",
    "tail": "print new messages of a topic as they come",
    "peek": "look at messages of a topic, from a place or a moment on",
    "lag": "how far every group is, queue by queue",
    "group": "list consumer groups, see their progress, set their offsets",
    "tx": "list open transactions, settle them by hand",
    "delay": "list messages that wait for their delivery, take one back",
    "dlq": "list, show and replay messages that groups gave up",
    "guarantee": "messages and their effects in a database: send again, look, settle by hand",
    "cluster": "which brokers there are and how they do",
    "store": "check the files of a stopped broker, have old messages deleted",
}

USAGE = 2


def main(argv: list[str] | None = None) -> int:
    """Run the command on the command line. Return the exit code."""
    if not __debug__:
        print("gantry: does not run under python -O: its assert statements guard the data", file=sys.stderr)
        return USAGE
    arguments = sys.argv[1:] if argv is None else argv
    name = arguments[0] if arguments else "--help"
    if name == "--version":
        print(f"gantry {_version()}")
        return 0
    parser = argparse.ArgumentParser(
        prog="gantry",
        usage="gantry COMMAND [ARGUMENTS...]",
        description="A message broker that speaks RocketMQ's protocols and keeps RocketMQ's files.",
        epilog="gantry COMMAND --help tells more about one of them.\n\n"
        "Exit codes: 0 done; 1 refused, or not there; 2 wrong use; 3 no answer; 130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and end")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="gantry")
    for command, summary in COMMANDS.items():
        commands.add_parser(command, help=summary, add_help=False)
    if name not in COMMANDS:
        parser.parse_args(arguments if arguments else ["--help"])
        parser.error("a command is needed")
    return _run(name, arguments[1:])


def _run(name: str, arguments: list[str]) -> int:
    try:
        return _call(name, arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "gantry").partition(".")[0]
        if missing == "gantry":
            raise
        server = "pip install 'gantrymq[server]', or './broker[server]' in a clone"
        print(f"gantry: {name} needs the package {missing}, which is not installed; {server}", file=sys.stderr)
        return USAGE


def _call(name: str, arguments: list[str]) -> int:
    from gantry.cli.clientflags import check_texts
    from gantry.cli.errors import report

    module = importlib.import_module(f"gantry.cli.{name}")
    summary = COMMANDS[name][0].upper() + COMMANDS[name][1:] + "."
    parser = argparse.ArgumentParser(prog=f"gantry {name}", description=summary, allow_abbrev=False)
    module.configure(parser)
    # Options may stand between positional arguments; plain parse_args does not support that for a list of them.
    is_mixed = getattr(module, "HAS_MANY_WORDS", False)
    parsed = parser.parse_intermixed_args(arguments) if is_mixed else parser.parse_args(arguments)

    def run() -> int:
        if "namesrv" in parsed:
            check_texts(vars(parsed))
        return int(module.run(parsed))

    return report(run)


def _version() -> str:
    from importlib import metadata

    return metadata.version("gantrymq")


if __name__ == "__main__":
    sys.exit(main())
