"""Refusals of the API server in one pass, by object with the reason; pure.

A refusal is an answer that the same request gets again until a user changes something: a right that the operator's
role lacks (403), a quota or a policy engine (403), an object that breaks a rule of the API server (400, 422), a kind
that it does not know (404).  Everything else is no refusal.  Where an object's apply fails otherwise (a webhook that
does not answer, a field that the server's schema lacks: 500), the other objects are applied, the status says so, and
then the pass fails and is repeated (`failed`).

One refused object stops nothing else, with one exception: a set is not applied while an object that its pods need
is refused (`NEEDED`), since its pods could not start.
"""

from __future__ import annotations

from collections.abc import Callable

from gantry_operator.kube import KubeError

STATUSES = frozenset({400, 403, 404, 422})
NEEDED = frozenset({"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Service"})
_NAMED_MAX, _REASON_CHARS_MAX = 20, 300


def is_refusal(error: KubeError) -> bool:
    """Return whether the error is a refusal: the same request fails until a user changes something."""
    return error.status in STATUSES


class Refusals:
    """The refusals of one pass over one cluster; `count` is called with the HTTP status of each."""

    def __init__(self, count: Callable[[int], None] = lambda status: None) -> None:
        self._count = count
        self._said: dict[str, str] = {}  # by object
        self.failed: dict[str, KubeError] = {}  # by object: no refusal, and not applied

    def __bool__(self) -> bool:
        return bool(self._said)

    def add(self, what: str, error: KubeError) -> None:
        """Add a refusal of `what` (kind and name); raise the KubeError again if it is not a refusal."""
        if not is_refusal(error):
            raise error
        self._count(error.status)
        self._said[what] = f"{error.status} {error.reason[:_REASON_CHARS_MAX]}"

    def add_apply(self, what: str, error: KubeError) -> None:
        """Add an object that was not applied: to the refusals, or to `failed`."""
        if is_refusal(error):
            self.add(what, error)
        else:
            self.failed[what] = error

    @property
    def failure(self) -> str:
        """Return the objects in `failed` with the answers, as a text; empty without any."""
        named = [f"{what}: {error.reason[:_REASON_CHARS_MAX]}" for what, error in sorted(self.failed.items())]
        more = len(named) - _NAMED_MAX
        return "; ".join(named[:_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")

    @property
    def message(self) -> str:
        """Return the refused objects with their reasons, as a text; at most `_NAMED_MAX` are named."""
        named = [f"{what}: {reason}" for what, reason in sorted(self._said.items())]
        more = len(named) - _NAMED_MAX
        said = "; ".join(named[:_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")
        return f"the API server refuses {said}; everything else goes on, and these are tried again each minute"
