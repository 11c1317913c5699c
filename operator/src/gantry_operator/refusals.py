"""What the API server refused in one pass: every object with the reason; pure.

A refusal is an answer that the same request gets again until a person changes something: a right that the operator's
role lacks (403), a quota or a policy engine (403), an object that breaks a rule of the API server (400, 422), a kind
that it does not know (404).  Everything else is no refusal.  Where an object's apply fails otherwise (a webhook that
does not answer, a field that the server's schema lacks: 500), the other objects are applied, the status says so, and
then the pass fails and is repeated (`failed`).

One refused object stops nothing else, with one exception: a set is not applied while an object that its pods need
is refused (`NEEDED`), since its template would promise what they cannot have.
"""

from __future__ import annotations

from collections.abc import Callable

from gantry_operator.kube import KubeError

STATUSES = frozenset({400, 403, 404, 422})
NEEDED = frozenset({"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Service"})
_NAMED_MAX, _REASON_CHARS_MAX = 20, 300


def is_refusal(error: KubeError) -> bool:
    """Whether a person has to change something."""
    return error.status in STATUSES


class Refusals:
    """Of one pass over one cluster; `count` hears the status of every one."""

    def __init__(self, count: Callable[[int], None] = lambda status: None) -> None:
        self._count = count
        self._said: dict[str, str] = {}  # by object
        self.failed: dict[str, KubeError] = {}  # by object: no refusal, and not applied

    def __bool__(self) -> bool:
        return bool(self._said)

    def add(self, what: str, error: KubeError) -> None:
        """`what` (kind and name) was refused; KubeError again for an answer that is no refusal."""
        if not is_refusal(error):
            raise error
        self._count(error.status)
        self._said[what] = f"{error.status} {error.reason[:_REASON_CHARS_MAX]}"

    def add_apply(self, what: str, error: KubeError) -> None:
        """`what` was not applied: refused, or `failed`."""
        if is_refusal(error):
            self.add(what, error)
        else:
            self.failed[what] = error

    @property
    def failure(self) -> str:
        """Every object whose apply failed otherwise, with the answer; empty for none."""
        named = [f"{what}: {error.reason[:_REASON_CHARS_MAX]}" for what, error in sorted(self.failed.items())]
        more = len(named) - _NAMED_MAX
        return "; ".join(named[:_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")

    @property
    def message(self) -> str:
        """Every object with its reason, and what to do; at most `_NAMED_MAX` objects are named."""
        named = [f"{what}: {reason}" for what, reason in sorted(self._said.items())]
        more = len(named) - _NAMED_MAX
        said = "; ".join(named[:_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")
        return f"the API server refuses {said}; everything else goes on, and these are tried again each minute"
