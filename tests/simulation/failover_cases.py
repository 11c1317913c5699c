"""What is looked at in the failover model: each rule switched off, and bounds that are small enough for every commit.

`FOUND` are the rules that the protocol needs: without one of them the search has to end at the fault that is named
here.  `HARMLESS` are rules without which the model stays safe; why they are kept is said with each.  `SAFE` has all
rules on: small bounds for every commit, and the full ones of `make model`.
"""

from __future__ import annotations

from typing import NamedTuple

from simulation.failover_model import Rules


class Case(NamedTuple):
    """One search, and what it has to find: a part of the fault's text, empty for nothing."""

    name: str
    rules: Rules
    fault: str = ""


_LACKS = "misses acknowledged"


def _still(**changes: int) -> Rules:
    return Rules(**({"messages": 1, "epochs": 1, "crashes": 0} | changes))  # type: ignore[arg-type]


def _lossy(**changes: int) -> Rules:
    return _still(**({"crashes": 1, "async_flush": True} | changes))


def _planned(**changes: int) -> Rules:
    return _still(**({"epochs": 2, "handovers": True} | changes))


def _forced(**changes: int) -> Rules:
    return _still(**({"epochs": 2, "forces": 1} | changes))


def _of(members: int, min_in_sync: int, **changes: int) -> Rules:
    return _still(**({"members": members, "min_in_sync": min_in_sync} | changes))


def _written(members: int, min_in_sync: int, **changes: int) -> Rules:
    """A promotion and a lost disk, of a group that has acknowledged a message."""
    written = {"epochs": 2, "disk_losses": 1, "is_written": True, "spontaneous_shrink": False}
    return _of(members, min_in_sync, **(written | changes))


def _pair(**changes: int) -> Rules:
    pair = {"members": 2, "messages": 1, "epochs": 2, "crashes": 0, "register_losses": 1, "min_in_sync": 1}
    return Rules(**(pair | changes))  # type: ignore[arg-type]


FOUND = [
    Case("members do not fence by their promise", _still(epochs=2, promise_fences=False), _LACKS),
    Case("a promise is not durable", _still(epochs=2, crashes=1, promise_is_durable=False), _LACKS),
    Case("a shrink counts before the register agrees", _still(shrink_after_register=False), _LACKS),
    Case("who joins counts after the register agreed", _still(min_in_sync=1, join_before_register=False), _LACKS),
    Case("a candidate from outside the set", _still(epochs=2, min_in_sync=1, elect_from_set=False), _LACKS),
    Case(
        "an election on the set at the seal, and the seal does not freeze it",
        _still(epochs=2, elect_on_live_set=False, seal_freezes_set=False, keeps_unheard=False),
        _LACKS,
    ),
    # The set of the next epoch may be the sealed one: a change that was asked for before the seal fits it as well.
    Case("the seal does not freeze the set", _still(epochs=2, seal_freezes_set=False), "not in sync"),
    Case("an election on a set one change old", _still(epochs=2, elect_on_newest_set=False), _LACKS),
    Case("nobody looks at a candidate's incarnation", _lossy(elect_incarnation=False), _LACKS),
    Case("any incarnation's acknowledgement counts", _lossy(ack_incarnation=False), _LACKS),
    Case("joining without the epoch-start rule", _still(crashes=1, epoch_start_rule=False), _LACKS),
    Case(
        "SELF-EPOCH without the epoch-start rule",
        _still(epochs=2, crashes=1, self_epoch=True, epoch_start_rule=False),
        _LACKS,
    ),
    Case("the master's word is enough", _still(epochs=2, min_in_sync=1, ack_by_all=False), "no whole copy"),
    Case("the set shrinks below minInSync", _still(disk_losses=1, shrink_bound=False), "no whole copy"),
    Case("REPLACE at any mark", _still(disk_losses=1, replace_rule=False), _LACKS),
    Case("REPLACE counts after the register agreed", _still(disk_losses=1, replace_counts_both=False), _LACKS),
    Case("LEAVE counts before the register agrees", _still(leaves=True, leave_after_register=False), _LACKS),
    Case("a set below minInSync confirms", _forced(freeze=False), "electable copies"),
    Case("a joiner lifts the freeze at once", _forced(freeze_counts_recorded=False), "electable copies"),
    *(
        Case(
            f"{members} members, minInSync {least}: a promotion drops who was not heard, a disk is lost",
            _written(members, least, keeps_unheard=False),
            "no whole copy",
        )
        for members, least in ((2, 2), (3, 2), (4, 2), (4, 3), (5, 3), (5, 4))
    ),
    Case("a handover to somebody outside the set", _planned(handover_in_set=False), "not in sync"),
    Case("a handover does not wait for the target", _planned(handover_waits=False), "drops"),
    Case("a handover goes on writing", _planned(handover_stops_writes=False), "drops"),
    Case(
        "a master that stops leaves fewer than minInSync",
        _planned(members=2, handover_leaves=True, disk_losses=1, shrink_bound=False, spontaneous_shrink=False),
        "no whole copy",
    ),
    Case("a handover given up may still happen", _planned(handover_by_version=False), "drops"),
    Case("FORCE while members of the set may go on", _forced(force_waits=False), _LACKS),
    Case("a bootstrap when not everybody answered", _pair(disk_losses=1, bootstrap_needs_all=False), _LACKS),
    Case("a recovery when not everybody answered", _pair(recover_needs_all=False), _LACKS),
    Case("a recovery takes anybody", _pair(recover_most_advanced=False), _LACKS),
    Case("a recovery compares logs that still grow", _pair(recover_after_promises=False), _LACKS),
    Case("a recovery's epoch was promised before", _pair(recover_above_promises=False), ""),
    Case(
        "offsets are not cut to the log's end",
        _pair(members=1, crashes=1, async_flush=True, consumers=True, counts_acked=False, clamp=False),
        "pass over",
    ),
]

HARMLESS = [
    # It saves the tail that nobody acknowledged, and would be needed if less than all of S had to acknowledge.
    Case("a candidate that is not the most advanced", _still(epochs=2, elect_most_advanced=False)),
    # Copying checks what stands before it, so a log that is not cut stays as it is for good.
    Case("a slave does not cut its log", _still(epochs=2, truncate=False)),
    # It is the freeze that saves it.  Both together are FOUND.
    Case("an election on the set at the seal", _still(epochs=2, elect_on_live_set=False)),
    # It follows from a match table that is kept by incarnation; the code keeps both.
    Case("confirmed may go back", _lossy(confirmed_is_monotone=False)),
    # The target is in the set, so what is acknowledged before it leads is in its log.  The promise ends the old
    # mastership's acknowledgements before the new one begins, which a model without time cannot tell apart.
    Case("a handover without the target's promise", _planned(handover_promise=False)),
]

SAFE = [
    Case("all rules", _still(epochs=2, crashes=1)),
    Case("all rules, minInSync 1", _still(epochs=2, min_in_sync=1)),
    Case("ASYNC flush", _lossy()),
    Case("SELF-EPOCH", _still(epochs=2, crashes=1, self_epoch=True, members=2)),
    Case("S of one after a promotion", _still(epochs=2, set_of_one=True)),
    Case("S of equals after a promotion", _still(epochs=2, set_of_equals=True)),
    Case("a disk is lost", _still(disk_losses=1)),
    Case("slaves say goodbye", _still(epochs=2, leaves=True, spontaneous_shrink=False)),
    Case("planned handovers", _planned()),
    Case("masters that stop", _planned(handover_leaves=True)),
    Case("masters that stop, a disk is lost", _planned(members=2, handover_leaves=True, disk_losses=1)),
    Case("a person chooses", _forced()),
    Case("a person chooses, minInSync 1, a disk is lost", _forced(min_in_sync=1, members=2, disk_losses=1)),
    Case("the register is lost", _pair()),
    Case("the register and a disk are lost", _pair(disk_losses=1, min_in_sync=2)),
    Case("four members, minInSync 3", _of(4, 3, epochs=2, spontaneous_shrink=False)),
    *(
        Case(f"{members} members, minInSync {least}, a promotion and a lost disk", _written(members, least))
        for members, least in ((2, 2), (3, 2), (4, 2), (4, 3))
    ),
    Case("five members, minInSync 3", _of(5, 3)),
    Case("consumers' offsets", _pair(members=1, crashes=1, async_flush=True, consumers=True, counts_acked=False)),
]

_FULL = {"messages": 2, "epochs": 3, "crashes": 1}


def _full(**changes: int) -> Rules:
    return Rules(**(_FULL | changes))  # type: ignore[arg-type]


def _sized(members: int, min_in_sync: int, **changes: int) -> Rules:
    """Large groups, in which only those leave the set who say so or are lost, to keep their numbers of states small."""
    return _of(members, min_in_sync, spontaneous_shrink=False, **changes)


FULL = [
    *(
        Case(f"{members} members, minInSync {least}, {what}", _sized(members, least, **changes))
        for members, least in ((4, 2), (4, 3), (5, 3), (5, 4), (6, 4), (7, 4))
        for what, changes in (
            ("a promotion", {"epochs": 2, "messages": 1}),
            ("a disk is lost", {"messages": 1, "disk_losses": 1}),
        )
    ),
    Case("5 members, minInSync 3, a promotion and a lost disk", _written(5, 3)),
    Case("5 members, minInSync 4, a promotion and a lost disk", _written(5, 4)),
    Case("two messages, two epochs, a crash", _full(epochs=2)),
    Case("two messages, two epochs, a crash, minInSync 1", _full(epochs=2, min_in_sync=1)),
    Case("one message, three epochs, a crash", _full(messages=1)),
    Case("ASYNC flush", _full(epochs=2, async_flush=True)),
    Case("SELF-EPOCH", _full(epochs=2, self_epoch=True)),
    Case("SELF-EPOCH, ASYNC flush, three epochs", _full(messages=1, self_epoch=True, async_flush=True)),
    Case("S of one after a promotion", _full(epochs=2, set_of_one=True)),
    Case("S of equals after a promotion", _full(epochs=2, set_of_equals=True)),
    Case("four members, minInSync 2", _of(4, 2, epochs=2, spontaneous_shrink=False)),
    Case("four members, minInSync 3, a disk is lost", _of(4, 3, epochs=2, disk_losses=1, spontaneous_shrink=False)),
    Case("six members, minInSync 4", _of(6, 4, spontaneous_shrink=False)),
    Case("a disk is lost, and a promotion", _full(messages=1, epochs=2, crashes=0, disk_losses=1)),
    Case("slaves say goodbye", _full(epochs=2, leaves=True)),
    Case("planned handovers, SELF-EPOCH, a crash", _full(messages=1, epochs=2, handovers=True, self_epoch=True)),
    Case("masters that stop, minInSync 1", _planned(handover_leaves=True, min_in_sync=1)),
    Case("masters that stop, a disk is lost", _planned(handover_leaves=True, disk_losses=1)),
    Case(
        "masters that stop, SELF-EPOCH, a crash",
        _full(messages=1, epochs=2, handovers=True, handover_leaves=True, self_epoch=True),
    ),
    Case("a person chooses, a crash", _full(messages=1, epochs=2, forces=1)),
    Case("a person chooses, two disks are lost", _forced(disk_losses=2, spontaneous_shrink=False)),
    Case("a person chooses twice, two messages", _full(epochs=3, members=2, min_in_sync=1, forces=2)),
    Case("the register is lost", _full(messages=1, epochs=2, crashes=0, register_losses=1)),
    Case("two members: the register and a disk are lost", _pair(messages=2, epochs=3, disk_losses=1, min_in_sync=2)),
    Case("consumers' offsets", _pair(epochs=3, crashes=1, async_flush=True, consumers=True, counts_acked=False)),
    Case("two messages, three epochs, nobody fails", _full(crashes=0)),
]
