"""The requests and answers of `/ha/v1`, as values without sockets.

    GET  /ha/v1/state?clusterUID=&group=&member=      200 the state (`hastate`, and more for people)
    GET  /ha/v1/config?clusterUID=&group=&member=     200 {config}: every key and the value that it has now
    POST /ha/v1/seal {clusterUID, group, member, epoch}
         200   the promise is on the disk, the member has stopped in lower epochs, and this is its state
         409   a higher epoch was promised (`promise` names it), or the member acts in this one already
         423   not now; ask again after `retryAfterMs`
    of a member whose group has a register (409 from another one):
    POST /ha/v1/nudge {}                           200: it reads the register now
    POST /ha/v1/handover {target, deadlineMs}      200: the target leads the next epoch; 409 not possible, 503 not done
    POST /ha/v1/cordon {on}                        200: refuses messages, or takes them again; how much is unreplicated
    PUT  /ha/v1/config {keys}                      200: which keys were applied, and which wait for a restart
    POST /ha/v1/clone {}                           200: the log is removed and copied again; 409: this copy is needed

An order names the epoch and the `life` from the member's state: 409 when either has changed since.  The life is a
random text, made when the server starts.  So a recorded order cannot be replayed after a restart, when the nonces are
forgotten.  A nudge needs neither, because it changes nothing.

Each request names its member; another member refuses it with 421.  clusterUID is empty when it is not known: in a
member that has none yet, or in a coordinator before there is a register.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from gantry.model import documents
from gantry.replication.haproof import Said
from gantry.replication.hastate import MemberRole, MemberState
from gantry.replication.members import MEMBERS_MAX, NUMBER_MAX

STATE, SEAL, NUDGE, HANDOVER = "/ha/v1/state", "/ha/v1/seal", "/ha/v1/nudge", "/ha/v1/handover"
CORDON, CONFIG, CLONE = "/ha/v1/cordon", "/ha/v1/config", "/ha/v1/clone"
SHOWN = f"GET {CONFIG}"  # as `Asked.call`; the order that changes the configuration has the same path
LIFE = "life"  # identifies one start of a member's server: in its state, and in each order
ORDERS = frozenset({NUDGE, HANDOVER, CORDON, CONFIG, CLONE})
BODY_BYTES_MAX = 64 << 10  # of a request or an answer; a state of 64 members has some 10 KiB


class MemberId(NamedTuple):
    """The member that a request is for."""

    cluster_uid: str
    group: str
    ordinal: int


class Answer(NamedTuple):
    """An HTTP status and the JSON document of the answer."""

    status: int
    document: Mapping[str, object]

    def encode(self) -> bytes:
        return json.dumps(self.document, separators=(",", ":")).encode()


class Asked(NamedTuple):
    """A request for this member; `epoch` of a seal, `body` of an order."""

    call: str
    epoch: int = 0
    body: documents.Document = {}  # noqa: RUF012  never changed


def ask_state(target: MemberId) -> Said:
    """Return the request for a member's state."""
    return Said("GET", f"{STATE}?{urlencode(_named(target))}")


def ask_config(target: MemberId) -> Said:
    """Return the request for a member's configuration."""
    return Said("GET", f"{CONFIG}?{urlencode(_named(target))}")


def order(path: str, whom: MemberId, epoch: int = 0, **more: object) -> Said:
    """Return the request of a seal or an order; `more` are further fields of its body."""
    method = "PUT" if path == CONFIG else "POST"
    return Said(method, path, json.dumps(_named(whom) | {"epoch": epoch, **more}).encode())


def _named(target: MemberId) -> dict[str, object]:
    return {"clusterUID": target.cluster_uid, "group": target.group, "member": target.ordinal}


def refuse(status: int, reason: str, **more: object) -> Answer:
    """Return an answer with the reason in `error`, and further fields."""
    return Answer(status, {"error": reason, **more})


def read(said: Said, state: MemberState) -> Asked | Answer:
    """Return the call that a request makes to the member in this state, or the answer that refuses it."""
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
    """Return the refusal of a seal that comes too late; None when the epoch has to be promised."""
    if epoch < state.promise:
        return refuse(409, f"epoch {state.promise} was promised, {epoch} is below it", promise=state.promise)
    if state.role is not MemberRole.NONE and epoch <= state.epoch:
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
