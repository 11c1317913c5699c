"""File descriptors of this process: how many there may be, and which of them remoting connections may take.

Connections and the files of a store share one table, which RLIMIT_NOFILE limits.  A store that cannot open its next
segment has to end the process, so remoting connections leave the upper half of the table alone:

    0 ............... limit - reserve ............... limit
    everything        files of the store, HTTP and replication

The system always gives the lowest free number.  A new connection with a number in the upper half shows that the lower
half is full, and is closed at once.  Files may fill the lower half too: a server that has only few connections keeps
such a one, or a large log would keep all clients out.  Therefore files are not counted, and one check covers every
listener of the process, the name server in `gantry standalone` too.  HTTP and replication have small limits of their
own and may use the upper half: probes and coordinators must get an answer while clients fill the lower one.

A loop accepts several connections before the first of them can be refused: as many as its listener's backlog.  That is
why a backlog is small against the reserve.  A smaller one would make clients wait: the system drops what does not fit
and they try again after a second.

Not promised: a store whose own files need more than the reserve beside full connections still ends the process.  A
segment of the log takes one descriptor, two once it was read.
"""

from __future__ import annotations

import contextlib
import logging
import resource

from gantry.errors import ConfigError

log = logging.getLogger(__name__)

LIMIT_LEAST = 256  # half of it is enough for listeners, libraries, queues, index and some twenty segments
_LIMIT_MOST = 1 << 20  # Linux's fs.nr_open; "unlimited" is taken as this
_BACKLOGS = 8  # of remoting: a broker's two ports and a name server's together are less than the reserve
_FEW = 16  # so many parts of the limit one server's connections may be, whatever the files take
_SHARES = 32  # one for the backlog of a small listener and one for its connections
_SHARE_LEAST = 4


def limit() -> int:
    """Return how many descriptors the process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _LIMIT_MOST if soft == resource.RLIM_INFINITY else soft


def reserve() -> int:
    """Return how many of them remoting connections leave to files."""
    return limit() // 2


def raise_limit() -> int:
    """Raise the soft limit to the hard one and return it; ConfigError when that is too low to serve."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # the system may allow less than the hard limit by now
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    found = limit()
    if found < LIMIT_LEAST:
        raise ConfigError(
            f"the limit of open files is {found}, expected at least {LIMIT_LEAST} and better 65536; raise the hard "
            "limit (ulimit -Hn 65536; LimitNOFILE=65536 in a systemd unit; --ulimit nofile=65536 of a container)"
        )
    log.info("limit of open files: %d; %d of them are kept free of remoting connections", found, reserve())
    return found


def is_reserved(descriptor: int, connections: int) -> bool:
    """Return whether a connection with this descriptor has to be closed; its server has so many others."""
    return descriptor >= limit() - reserve() and connections >= limit() // _FEW


def backlog(most: int) -> int:
    """Return `most`, or less where the limit is low: how many remoting connections may wait to be accepted."""
    return min(most, limit() // _BACKLOGS)


def share(most: int) -> int:
    """Return `most`, or less where the limit is low: what one listener may take of the reserve."""
    return max(_SHARE_LEAST, min(most, limit() // _SHARES))
