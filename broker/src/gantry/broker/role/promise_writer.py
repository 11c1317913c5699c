"""Changes a running member's promises, one after the other; each is durable before it is reported.

The housekeeper runs jobs in order, and each saves all earlier changes too, so the state on the disk never goes back.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gantry.errors import StoreError
from gantry.replication import term_promise
from gantry.replication.term_promise import TermPromise
from gantry.store.jobs import submit_or_refuse

if TYPE_CHECKING:
    from gantry.broker.role.membership import Membership
    from gantry.store.background import Done, Worker
    from gantry.store.disk import Disk


class PromiseWriter:
    """Writes the promises of one member; loop thread only."""

    def __init__(self, member: Membership, disk: Disk, root: str, housekeeper: Worker) -> None:
        self._member = member
        self._disk = disk
        self._root = root
        self._housekeeper = housekeeper
        self._intended = member.term_promise
        self._is_over = False

    def promise(self, epoch: int, done: Done) -> None:
        """Promise an epoch. Nothing begins below it from here on; the promise counts when `done` is called without an
        error.
        """
        self._member.fencing = max(self._member.fencing, epoch)
        if epoch <= self._member.term_promise.promise:
            done(None)
            return
        self._change(self._intended.promising(max(epoch, self._intended.promise)), done)

    def number(self, disk: int, done: Done) -> None:
        """Store the number that the register gave this disk."""
        self._change(replace(self._intended, disk=disk), done)

    def end(self) -> None:
        """Refuse further changes: the next broker of this member, in the same process, reads the disk."""
        self._is_over = True

    def _change(self, intended: TermPromise, done: Done) -> None:
        if self._is_over:
            done(StoreError("this part of the member has ended"))
            return
        self._intended = intended

        def finished(error: StoreError | None) -> None:
            if error is None:
                self._member.term_promise = intended
            done(error)

        submit_or_refuse(self._housekeeper, partial(term_promise.save, self._disk, self._root, intended), finished)
