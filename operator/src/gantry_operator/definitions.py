"""`gantry-operator-definitions`: update the definitions on the API server to those of this operator.

Helm makes the definitions in a chart's `crds/` once and never changes them.  So a Job of the chart runs this before
each installation and upgrade, from the operator's own image, with rights of its own (`templates/definitions.yaml`).

A definition is applied server-side, with force, and with helm's field manager: an installation by helm 4 applies
`crds/` itself, and would refuse to overwrite fields of another manager.  Its versions are one atomic list, so fields
and rules that no longer exist are removed.  Objects are not changed.  The program ends when the server serves each
definition.
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
HELM = "helm"  # the field manager's name in helm 3 and 4
PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.5


def main() -> None:
    """Run the program; the exit status says whether it succeeded."""
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
    """Apply each definition and wait until it is served; KubeError or TimeoutError when that fails."""
    async with asyncio.timeout(patience_s):
        for definition in wanted:
            await _put(kube, definition)
        for definition in wanted:
            await _until_served(kube, definition["metadata"]["name"])


async def _put(kube: Kube, definition: Mapping[str, Any]) -> None:
    name = definition["metadata"]["name"]
    former = await kube.get(f"{PATH}/{name}")
    applied = await kube.apply_at(f"{PATH}/{name}", dict(definition), HELM)
    if former is None:
        log.info("%s: made", name)
    elif applied["metadata"]["generation"] != former["metadata"]["generation"]:
        log.info("%s: brought to this version", name)
    else:
        log.info("%s: unchanged", name)


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
