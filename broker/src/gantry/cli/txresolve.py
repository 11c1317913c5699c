"""`gantry tx resolve`: open batches of sinks, and a decision by hand.

Without --commit or --abort it lists each sink with its newest decision, and each part that has open half messages, with
its group and verdict.  For a batch that is decided already, both options only complete that decision.  For another one:
    --commit    the batch consists of the open parts, or of those named by --part.  Two parts of one partition (the
                number before the first dash) are two attempts at the same rows, so --part has to choose one.  It is
                also needed when a group has more open parts than it lists (16384 for a sink)
    --abort     these parts are never committed; the sink may write the batch again

Spark does this by itself when a query restarts; by hand it is for a query that will not be restarted.

--forget removes a sink from the table of every registered group, when nothing of it is open; a query that uses it later
starts from the beginning.  It does nothing while a group has no master.  A group that was not registered still knows
the sink, and refuses the batches of a new query until --forget is called again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from gantry.cli.numbers import Whole
from gantry.cli.output import Row, show, show_json
from gantry.client.blockingsinks import BlockingSinks
from gantry.client.requests.sink_requests import OpenPartInfo, SinkBatch, SinkInfo
from gantry.errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sink", metavar="ID", default="", help="only this sink")
    parser.add_argument("--batch", metavar="N", type=Whole(0), help="its batch, with --commit or --abort")
    parser.add_argument("--part", metavar="NAME", action="append", default=[], help="only these parts; may be repeated")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--commit", action="store_true", help="deliver the batch")
    what.add_argument("--abort", action="store_true", help="never deliver these parts")
    what.add_argument("--forget", action="store_true", help="remove a sink that is not used any more")


def run(arguments: argparse.Namespace, operator: str) -> int:
    """List, and then carry out the decision. Return the exit code."""
    acts = arguments.commit or arguments.abort
    if (acts or arguments.forget) and not arguments.sink:
        raise ConfigError("say whose batch: --sink ID")
    if acts != (arguments.batch is not None):
        raise ConfigError("--batch N goes with --commit or --abort")
    with BlockingSinks(arguments.namesrv, arguments.timeout) as sinks:
        infos, parts, more = sinks.look(arguments.sink)
        _list(infos, parts, arguments.output)
        if more:
            hint = "" if arguments.sink else "; name a sink"
            print(f"gantry: {more} more are not shown{hint}", file=sys.stderr)
        if arguments.forget:
            sinks.forget(SinkBatch(arguments.sink, 0, _home(infos, parts, arguments.sink)), operator)
            print(f"{arguments.sink}: forgotten", file=sys.stderr)
        elif acts:
            if arguments.commit and more and not arguments.part:
                raise ConfigError(f"{more} open parts are not listed and would be left out; choose by --part")
            _act(sinks, arguments, infos, parts, operator)
    return 0


def _act(
    sinks: BlockingSinks,
    arguments: argparse.Namespace,
    infos: Sequence[SinkInfo],
    parts: Sequence[OpenPartInfo],
    operator: str,
) -> None:
    one = SinkBatch(arguments.sink, arguments.batch, _home(infos, parts, arguments.sink))
    named = set(arguments.part)
    wanted = [part for part in parts if part.batch == one.batch and (not named or part.part in named)]
    if named - {part.part for part in wanted}:
        raise ConfigError(f"nothing is open of {', '.join(sorted(named - {part.part for part in wanted}))}")
    names, groups = sorted({part.part for part in wanted}), sorted({part.group for part in wanted})
    decision = sinks.decision(one)
    if decision.batch < one.batch and not names:
        raise ConfigError(f"nothing of batch {one.batch} is open and it is not decided; there is nothing to do")
    if arguments.commit:
        if decision.batch < one.batch:
            _refuse_two_tries(names)
        done = sinks.commit(one, names, groups, operator)
    else:
        done = sinks.abort(one, names, operator)
    said = "was decided before and has ended" if decision.batch >= one.batch else "has ended as told"
    print(f"batch {one.batch} of {one.sink} {said}: {', '.join(done.parts) or 'no part'} committed", file=sys.stderr)


def _refuse_two_tries(names: Sequence[str]) -> None:
    tries = Counter(name.partition("-")[0] for name in names)
    twice = sorted(partition for partition, count in tries.items() if count > 1)
    if twice:
        raise ConfigError(f"partitions {', '.join(twice)} were written more than once; choose one try each by --part")


def _home(infos: Sequence[SinkInfo], parts: Sequence[OpenPartInfo], sink: str) -> str:
    homes = {info.home for info in infos} | {part.home for part in parts}
    if len(homes) != 1:
        where = f"has the homes {', '.join(sorted(homes))}" if homes else "is not known to any group"
        raise ConfigError(f"sink {sink} {where}; there is nothing to do")
    return homes.pop()


def _list(infos: Sequence[SinkInfo], parts: Sequence[OpenPartInfo], output: str) -> None:
    sinks, opened = [_sink_row(info) for info in infos], [_part_row(part) for part in parts]
    if output == "json":
        show_json({"sinks": sinks, "open": opened})
    else:
        show(sinks, output, empty="no group knows a sink")
        show(opened, output, empty="no half of a sink is open")


def _sink_row(info: SinkInfo) -> Row:
    return {
        "sink": info.sink,
        "home": info.home,
        "group": info.group,
        "batch": info.batch,
        "done": info.is_done,
        "parts": info.parts,
        "aborted": info.aborted,
        "decidedMs": info.decided_ms,
    }


def _part_row(part: OpenPartInfo) -> Row:
    return {
        "sink": part.sink,
        "batch": part.batch,
        "part": part.part,
        "group": part.group,
        "home": part.home,
        "halves": part.halves,
        "ageMs": part.age_ms,
        "verdict": part.verdict,
    }
