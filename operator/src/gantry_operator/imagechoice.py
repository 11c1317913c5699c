"""Which image a cluster runs when it names none and the operator's default changes; pure.

An empty `spec.image` means the operator's default broker image.  An upgrade of the operator brings another default, and
every cluster that follows it would replace its pods in the same minute.  So a cluster keeps the image that its status
names until the policy lets it take the new one:

    None       never; people set spec.image
    OneByOne   one cluster at a time: the others wait until it is ready and in sync on the new image
    All        at once

So a cluster on the new image that is not well stops the rollout, whatever the reason: it may be the new image.
Clusters take their turns in the order of namespace and name, Stalled ones last.  Paused and deleted clusters, and those
that name an image, take no turn and stop none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gantry_operator.api.brokercluster import Held, Key
from gantry_operator.api.wishes import read_wishes
from gantry_operator.settings import OnUpgrade


class Candidate(NamedTuple):
    """The fields of a cluster that decide about turns."""

    key: Key
    follows: bool  # it names no image
    image: str  # which it runs, or is being brought to; empty: it has none yet
    is_settled: bool = False  # ready, in sync, nothing left to change
    is_stalled: bool = False
    is_out: bool = False  # paused or being deleted


class ImageChoice(NamedTuple):
    """The image that a cluster gets now, and why it is not the operator's default; None when it is the default."""

    image: str
    held: Held | None = None


def candidate(document: Mapping[str, Any], default: str) -> Candidate:
    """Read a BrokerCluster of any version: fields that are missing or of another type count as empty.

    `status.image` names every image that pods run, as their sets name it (pods may name a mirror), that of most pods
    first; one pod on the default means that the cluster is being brought to it.
    """
    about, spec, status = (_part(document, each) for each in ("metadata", "spec", "status"))
    found = {each.get("type"): each.get("status") for each in status.get("conditions") or [] if isinstance(each, dict)}
    is_settled = (found.get("Ready"), found.get("Reconciling"), found.get("InSync")) == ("True", "False", "True")
    images = str(status.get("image") or "").split(", ")
    is_paused = read_wishes(about.get("annotations") or {}).is_paused
    return Candidate(
        Key(str(about.get("namespace", "")), str(about.get("name", ""))),
        not spec.get("image"),
        default if default in images else images[0],
        is_settled,
        found.get("Stalled") == "True",
        is_paused or "deletionTimestamp" in about,
    )


def choose(policy: OnUpgrade, default: str, mine: Candidate, others: Iterable[Candidate]) -> ImageChoice:
    """Choose the image of `mine`, which follows the default; `others` matter only under OneByOne."""
    assert mine.follows
    if mine.image in ("", default) or (policy is OnUpgrade.ALL and not mine.is_out):
        return ImageChoice(default)
    if policy is OnUpgrade.NONE:
        said = f"{default} is the operator's image; set spec.image to it to upgrade this cluster"
        return ImageChoice(mine.image, Held("NotAutomatic", said))
    if mine.is_out:
        return ImageChoice(mine.image, Held("Paused", f"{default} waits until this cluster is not paused any more"))
    following = [each for each in others if each.follows and not each.is_out and each.key != mine.key]
    under_way = [each for each in following if each.image in ("", default) and not each.is_settled]
    waiting = [each for each in following if each.image not in ("", default)]
    before = min([*under_way, *(each for each in waiting if _turn(each) < _turn(mine))], key=_turn, default=None)
    if before is None:
        return ImageChoice(default)
    name = f"{before.key.namespace}/{before.key.name}"
    is_under_way = before in under_way
    said = f"{default} waits until {name} is ready and in sync on it" if is_under_way else f"{default} waits for {name}"
    return ImageChoice(mine.image, Held("WaitsForTurn", said))


def _turn(of: Candidate) -> tuple[bool, Key]:
    return of.is_stalled, of.key


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}
