"""How long a master serves and waits, as parts of one time: the period of its renewals.

A member knows only how often it renews (`replication.renew_every_s`).  Two renewals are at most one suspicion
(`failover.agreement` sees to it), so what lasts less than two renewals is over before another member is elected.

    fresh    1.7 renewals   a master serves after a renewal
    heard    1.2 renewals   a master serves after its slaves answered a beat
    beat     a third of `heard`, 1 s at most
    again    a quarter      the register is read again after a renewal without an answer

Which timer ends what is in broker/docs/failover.md, section 4.
"""

from __future__ import annotations

from typing import NamedTuple

_BEAT_S_MAX = 1.0


class ServingWaits(NamedTuple):
    """Times of a master in a group with a register, in seconds."""

    fresh_s: float
    heard_s: float
    beat_s: float
    again_s: float


def serving_waits(renew_every_s: float) -> ServingWaits:
    """Return the times of a master that renews this often."""
    heard_s = 1.2 * renew_every_s
    return ServingWaits(1.7 * renew_every_s, heard_s, min(_BEAT_S_MAX, heard_s / 3), renew_every_s / 4)
