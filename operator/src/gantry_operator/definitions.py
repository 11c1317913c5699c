"""`gantry-operator-definitions`: bring the kinds that the API server knows to those that this operator was built with.

Helm makes the definitions in a chart's `crds/` once and never looks at them again.  So an upgrade that brings a field
or a rule needs somebody who puts it there first: a Job of the chart with rights of its own, on request
(`definitions.upgrade`), from the operator's own image.

A definition is replaced as a whole, on the version that was read, not merged: of fields and rules that were given up
nothing must stay.  Objects are left alone, whatever they hold.  It is over when the server serves each of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gantry_operator.account import FOLDER, Account, of_pod
from gantry_operator.api.definitions import definitions
from gantry_operator.kube import Kube, KubeError

log = logging.getLogger("gantry.operator.definitions")

ALL: tuple[Mapping[str, Any], ...] = tuple(definitions())
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.5


def main() -> None:
    """Do it; the exit status says whether it was done."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        account = of_pod(os.environ, Path(os.environ.get("GANTRY_OPERATOR_ACCOUNT", "") or FOLDER))
        asyncio.run(_bring(account))
    except TimeoutError:
        said = "see what is wrong with them: kubectl describe customresourcedefinitions"
        sys.exit(f"gantry-operator-definitions: the API server does not serve them within {PATIENCE_S:.0f} s; {said}")
    except (KubeError, ValueError, OSError) as error:
        sys.exit(f"gantry-operator-definitions: {error}")


async def _bring(account: Account) -> None:
    async with Kube(account, account.token) as kube:
        await bring(kube, ALL)


async def bring(kube: Kube, wanted: Sequence[Mapping[str, Any]], patience_s: float = PATIENCE_S) -> None:
    """Put each there and wait until it is served; KubeError or TimeoutError when that cannot be."""
    async with asyncio.timeout(patience_s):
        for definition in wanted:
            await _put(kube, definition)
        for definition in wanted:
            await _until_served(kube, definition["metadata"]["name"])


async def _put(kube: Kube, definition: Mapping[str, Any]) -> None:
    name = definition["metadata"]["name"]
    while True:
        found = await kube.get(f"{PATH}/{name}")
        if found is None:
            if await kube.create_at(PATH, dict(definition)):
                log.info("%s: made", name)
                return
            continue
        try:
            await kube.replace(f"{PATH}/{name}", _over(found, definition))
        except KubeError as error:
            if error.status != 409:  # somebody else was quicker: look again
                raise
        else:
            log.info("%s: replaced", name)
            return


def _over(found: Mapping[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """Ours in the place of what was found: its version, its own labels and annotations, and what the server keeps."""
    metadata = dict(found["metadata"])
    for kind in ("labels", "annotations"):
        metadata[kind] = {**metadata.get(kind, {}), **definition["metadata"].get(kind, {})}
    metadata.pop("managedFields", None)
    return {**definition, "metadata": metadata, "status": found.get("status", {})}


async def _until_served(kube: Kube, name: str) -> None:
    while True:
        found = await kube.get(f"{PATH}/{name}")
        conditions = {} if found is None else _conditions(found)
        if conditions.get("Established") == "True" and conditions.get("NamesAccepted") == "True":
            return
        await asyncio.sleep(_LOOK_EVERY_S)


def _conditions(found: Mapping[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in found.get("status", {}).get("conditions") or ()}


if __name__ == "__main__":
    main()
