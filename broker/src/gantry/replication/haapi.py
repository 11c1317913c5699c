"""What is asked at `/ha/v1` of a member, and with what status it is answered: values on both sides, no sockets.

    GET  /ha/v1/state?clusterUID=&group=&member=      200 the state (`hastate`, and more for people)
    GET  /ha/v1/config?clusterUID=&group=&member=     200 {config}: every key and the value that it has now
    POST /ha/v1/seal {clusterUID, group, member, epoch}
         200 the epoch is promised on the disk, no matter who led or followed in a lower one stopped, and this is the
         state 409 a higher epoch was promised, or the member acts in this one already; `promise` says which 423 not
         now, ask again after `retryAfterMs`
    of a member whose group has a register (409 from another one):
    POST /ha/v1/nudge {}                           200: it looks at the register now
    POST /ha/v1/handover {target, deadlineMs}      200: the target leads the next epoch; 409 not possible, 503 not done
    POST /ha/v1/cordon {on}                        200: takes no more messages, or takes them again; what is left
    PUT  /ha/v1/config {keys}                      200: which were applied, and which wait for a restart
    POST /ha/v1/clone {}                           200: the log goes, and all is copied again; 409 of who is needed

An order names the epoch and the life that the member's state has just told: 409 when either is another one by now.  A
life is a text of chance, made when the door is opened.  So an order that somebody recorded is good for nothing after a
restart, which forgets the nonces.  A nudge needs neither, for it changes nothing.

Each request names its member, so that it is worth nothing elsewhere: 421 from another one.  An empty clusterUID is of
somebody who does not know it: a member that has none yet, or a coordinator before there is a register.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from gantry.model import documents
from gantry.replication.haproof import Said
from gantry.replication.hastate import MemberState, Role
from gantry.replication.members import MEMBERS_MAX, NUMBER_MAX

STATE, SEAL, NUDGE, HANDOVER = "/ha/v1/state", "/ha/v1/seal", "/ha/v1/nudge", "/ha/v1/handover"
CORDON, CONFIG, CLONE = "/ha/v1/cordon", "/ha/v1/config", "/ha/v1/clone"
SHOWN = f"GET {CONFIG}"  # as what is asked; an order to change it has the same path
LIFE = "life"  # of a member's door: in its state, and in each order
ORDERS = frozenset({NUDGE, HANDOVER, CORDON, CONFIG, CLONE})
BODY_BYTES_MAX = 64 << 10  # of a request or an answer; a state of 64 members has some 10 KiB


class Target(NamedTuple):
    """Who is asked."""

    cluster_uid: str
    group: str
    ordinal: int


class Answer(NamedTuple):
    """A status and what goes with it."""

    status: int
    document: Mapping[str, object]

    def encode(self) -> bytes:
        """The body."""
        return json.dumps(self.document, separators=(",", ":")).encode()


class Asked(NamedTuple):
    """A call that is meant for this member; `epoch` of a seal, `body` of an order."""

    call: str
    epoch: int = 0
    body: documents.Document = {}  # noqa: RUF012  never changed


def ask_state(target: Target) -> Said:
    """The question for a member's state."""
    return Said("GET", f"{STATE}?{urlencode(_named(target))}")


def ask_config(target: Target) -> Said:
    """The question for a member's configuration."""
    return Said("GET", f"{CONFIG}?{urlencode(_named(target))}")


def order(path: str, whom: Target, epoch: int = 0, **more: object) -> Said:
    """A call that changes something, in an epoch; `more` is what an order brings."""
    method = "PUT" if path == CONFIG else "POST"
    return Said(method, path, json.dumps(_named(whom) | {"epoch": epoch, **more}).encode())


def _named(target: Target) -> dict[str, object]:
    return {"clusterUID": target.cluster_uid, "group": target.group, "member": target.ordinal}


def refuse(status: int, reason: str, **more: object) -> Answer:
    """An answer that says no, and why."""
    return Answer(status, {"error": reason, **more})


def read(said: Said, state: MemberState) -> Asked | Answer:
    """What is asked of the member that is in this state; an answer when that is settled already."""
    path, _, query = said.path.partition("?")
    try:
        if path == STATE or (path == CONFIG and said.method == "GET"):
            asked = Asked(STATE if path == STATE else SHOWN)
            source: documents.Document = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=16))
        elif path == SEAL or path in ORDERS:
            source = documents.document(json.loads(said.body), "the body")
            asked = Asked(path, documents.integer(source, "epoch"), source if path in ORDERS else {})
        else:
            return refuse(404, f"{path[:100]} is none of {', '.join([STATE, SEAL, *sorted(ORDERS)])}")
        if said.method != ("GET" if asked.call in (STATE, SHOWN) else "PUT" if path == CONFIG else "POST"):
            return refuse(405, f"{said.method} is not for {path}")
        misfit = _misfit(source, state)
        if misfit:
            return refuse(421, misfit)
    except (ValueError, RecursionError) as error:
        return refuse(400, f"the request cannot be read: {error}")
    if path == SEAL and not 1 <= asked.epoch <= NUMBER_MAX:
        return refuse(400, f"epoch {asked.epoch}: expected 1 to {NUMBER_MAX}")
    return asked


def why_not_sealed(state: MemberState, epoch: int) -> Answer | None:
    """The refusal of a seal that comes too late; None when it has to be done."""
    if epoch < state.promise:
        return refuse(409, f"epoch {state.promise} was promised, {epoch} is below it", promise=state.promise)
    if state.role is not Role.NONE and epoch <= state.epoch:
        return refuse(
            409, f"it is a {state.role.value} in epoch {state.epoch} already", promise=max(state.promise, state.epoch)
        )
    return None


def _misfit(source: documents.Document, state: MemberState) -> str:
    cluster_uid, group = documents.text(source, "clusterUID"), documents.text(source, "group")
    ordinal = documents.integer(source, "member", -1)
    if group != state.group or not 0 <= ordinal < MEMBERS_MAX or ordinal != state.member.ordinal:
        return f"this is member {state.member.ordinal} of {state.group!r}, asked for was {ordinal} of {group[:100]!r}"
    if cluster_uid and state.cluster_uid and cluster_uid != state.cluster_uid:
        return f"this folder is of the cluster {state.cluster_uid}, asked for was {cluster_uid[:100]!r}"
    return ""
