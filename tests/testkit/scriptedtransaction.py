"""What a broker does in a transaction, made up: checks about halves, and the ends that come back."""

from __future__ import annotations

from gantry.leaves import frames, properties, records
from gantry.leaves.frames import Command
from gantry.wire.codes import RequestCode
from gantry.wire.command import request
from testkit.scripted import ScriptedCluster

_HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def check(
    message_id: str, *, group: str = "p", body: bytes = b"x", half_offset: int = 5, log_offset: int = 900
) -> Command:
    """CHECK_TRANSACTION_STATE as brokers send it: the message under its real topic."""
    pairs = {"UNIQ_KEY": message_id, "TRAN_MSG": "true", "PGROUP": group, "KEYS": "o-1"}
    send = frames.Send(topic="Orders", body=body, born_host=_HOST, properties=properties.pack(pairs))
    send.queue_offset = half_offset
    record = bytearray(records.size_of(send))
    records.encode_run(record, 0, log_offset, [send], 9, _HOST)
    ext = {
        "tranStateTableOffset": str(half_offset),
        "commitLogOffset": str(log_offset),
        "msgId": message_id,
        "transactionId": message_id,
    }
    return request(RequestCode.CHECK_TRANSACTION_STATE, ext, bytes(record))


def ends(cluster: ScriptedCluster, name: str = "broker-a") -> list[Command]:
    """The ENDs that a broker got."""
    return cluster.asked(name, RequestCode.END_TRANSACTION)


def outcomes(cluster: ScriptedCluster, name: str = "broker-a") -> list[str]:
    """What they said: "8" commit, "12" rollback, "0" unknown."""
    return [command.ext["commitOrRollback"] for command in ends(cluster, name)]
