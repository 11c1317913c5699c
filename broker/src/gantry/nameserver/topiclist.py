"""The list of all topics, or of those of a cluster: in order, made in slices, and no longer than a frame."""

from __future__ import annotations

from collections.abc import Generator
from heapq import merge
from itertools import islice

from gantry.errors import Refusal
from gantry.nameserver.table import RouteTable
from gantry.wire.bodies import dumps
from gantry.wire.codes import ResponseCode

_SORTED_AT_ONCE = 2000  # some 0.5 us each
_MERGED_AT_ONCE = 500  # up to 3 us each
BYTES_MAX = 15 << 20  # a frame has 16 MiB, its header included


def topic_list(table: RouteTable, cluster: str | None) -> Generator[None, None, bytes | Refusal]:
    """Return the body of an answer with all topics, or those with queues in a cluster."""
    groups = set(table.clusters().get(cluster, ())) if cluster is not None else None
    runs = list[list[str]]()
    names = yield from table.topics.all_topics()
    for at in range(0, len(names), _SORTED_AT_ONCE):
        yield
        some = names[at : at + _SORTED_AT_ONCE]
        runs.append(sorted(some if groups is None else table.topics.on_groups(some, groups)))
    pieces, size, in_order = list[bytes](), 0, merge(*runs)
    while some := list(islice(in_order, _MERGED_AT_ONCE)):
        yield
        pieces.append(dumps(some)[1:-1])
        size += len(pieces[-1]) + 1
        if size > BYTES_MAX:
            remark = f"the list has more than {BYTES_MAX} bytes, which no frame holds; ask cluster by cluster (224)"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
    return b'{"topicList":[' + b",".join(pieces) + b"]}"
