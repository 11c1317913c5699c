"""`gantry-operator-leave`: remove our finalizers before the operator is uninstalled (the chart's pre-delete Job).

Without an operator its finalizers are never removed: neither the objects nor their namespace could be deleted.  So this
program removes them from all objects, of any version of the definitions.  Brokers go on, without failover.  What
`deletionPolicy: Delete` would have deleted stays, as with Retain.  An operator that is installed again takes the
objects over as they are, and adds its finalizers again.

The running operator would add them again, so it is made to end first: its Lease is taken from it, and nothing is
written before its last renewal has run out.  The Lease is deleted last; an operator that Kubernetes restarts meanwhile
waits until it has been absent for long enough, and is uninstalled by then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from gantry.clock import SystemClock
from gantry_operator.account import Account, of_pod
from gantry_operator.api.brokercluster import GROUP, PLURAL, VERSION
from gantry_operator.api.declared import Kind
from gantry_operator.kube import Kube, KubeError, lease_path
from gantry_operator.leader import LEASE_S, Election, LeaseName
from gantry_operator.settings import Settings, from_environment

log = logging.getLogger("gantry.operator.leaving")

Document = dict[str, Any]
PLURALS = (PLURAL, *Kind)
_ROOT, _OURS = f"/apis/{GROUP}/{VERSION}", f"{GROUP}/"
_ROUNDS_MAX = 5  # an object that changed meanwhile is read again


class ObjectRemover(Protocol):
    """The part of `kube.Kube` that is used here."""

    async def get(self, path: str) -> Document | None: ...
    async def listed(self, folder: str, labels: Mapping[str, str]) -> list[Document]: ...
    async def merge(self, path: str, change: Document) -> None: ...
    async def delete(self, path: str, uid: str) -> None: ...


def main() -> None:
    """Run the program; the exit status says whether it succeeded."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = from_environment(os.environ)
        account = of_pod(os.environ, settings.account)
        asyncio.run(_leave(settings, account))
    except (KubeError, ValueError, OSError) as error:
        hint = "helm uninstall --no-hooks leaves finalizers on the objects"
        sys.exit(f"gantry-operator-leave: {error}; nothing was uninstalled; {hint}")


async def _leave(settings: Settings, account: Account) -> None:
    place = LeaseName(account.namespace, settings.lease)
    async with Kube(account, account.token) as kube:
        election = Election(kube, place, f"leaving_{secrets.token_hex(4)}", SystemClock())
        await election.seize()
        renewing = asyncio.create_task(election.run())
        done, _ = await asyncio.wait([renewing], timeout=LEASE_S)
        if done:
            raise KubeError("the operator's Lease", 409, renewing.result())
        held = await hand_back(kube, settings.namespaces)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        lease = await kube.get(lease_path(*place))
        if lease is not None:
            await kube.delete(lease_path(*place), lease["metadata"]["uid"])
    log.info("%d objects were handed back; brokers go on without failover until an operator is installed again", held)


async def hand_back(kube: ObjectRemover, namespaces: tuple[str, ...]) -> int:
    """Remove our finalizers from all objects of these namespaces (none: of all); return how many had one.

    A namespace of several that may not be read is skipped with a warning: its roles went with it.  KubeError for
    anything else that the API server refuses.
    """
    total = 0
    for plural in PLURALS:
        folders = [f"{_ROOT}/namespaces/{each}/{plural}" for each in namespaces] or [f"{_ROOT}/{plural}"]
        for folder in folders:
            try:
                total += await _clear(kube, folder, plural)
            except KubeError as error:
                if error.status != 404 and (error.status != 403 or not namespaces):
                    raise  # 404: the kind is not defined here, so there is nothing to hand back
                log.warning("%s is skipped: %s", folder, error)
    return total


async def _clear(kube: ObjectRemover, folder: str, plural: str) -> int:
    names: set[str] = set()
    for _ in range(_ROUNDS_MAX):
        held = [each for each in await kube.listed(folder, {}) if _finalizers(each)]
        if not held:
            return len(names)
        for each in held:
            about = each["metadata"]
            name = f"{about['namespace']}/{about['name']}"
            kept = [one for one in about["finalizers"] if not one.startswith(_OURS)]
            change = {"metadata": {"finalizers": kept, "resourceVersion": about["resourceVersion"]}}
            try:
                await kube.merge(f"{_ROOT}/namespaces/{about['namespace']}/{plural}/{about['name']}", change)
            except KubeError as error:
                if error.status not in (404, 409):
                    raise
            else:
                names.add(name)
                log.info("%s %s is handed back; what its deletion would have deleted stays", plural, name)
    raise KubeError(folder, 409, "objects get our finalizers back as they are removed; does another operator run?")


def _finalizers(document: Document) -> list[str]:
    return [each for each in document["metadata"].get("finalizers") or [] if each.startswith(_OURS)]


if __name__ == "__main__":
    main()
