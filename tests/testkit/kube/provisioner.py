"""Volumes for a test cluster: `python -m testkit.kube.provisioner SERVER AUTHORITY TOKEN FOLDER`.

A claim of the class `local` gets a folder on the disk of the node that the scheduler chose, and the volume says so in
its node affinity; one of the class `shared` gets a folder that every node sees.  A released volume is deleted, what was
written stays where it is: losing data is for the tests to do.  Folders are made here, open to everybody: the kubelet
would make them for root alone, and containers are not root.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from testkit.kube.api import Api, Document, RefusedError

PERIOD_S = 0.5
CLASSES = ("local", "shared")
_CLAIMS, _VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
_CHOSEN_NODE = "volume.kubernetes.io/selected-node"


def volume(claim: Document, folder: Path) -> Document | None:
    """For a claim; None while nobody knows on which node it is going to be used."""
    about, wanted = claim["metadata"], claim["spec"]
    name, kind = f"pvc-{about['uid']}", wanted["storageClassName"]
    node = about.get("annotations", {}).get(_CHOSEN_NODE)
    if kind == "local" and not node:
        return None
    path = str(folder / "shared" / name) if kind == "shared" else f"/var/lib/disks/{name}"
    # A node sees its folder `disk` as /var/lib.
    here = folder / "shared" / name if kind == "shared" else folder / str(node) / "disk" / "disks" / name
    here.mkdir(parents=True, exist_ok=True)
    here.chmod(0o777)
    spec: Document = {
        "capacity": wanted["resources"]["requests"],
        "accessModes": wanted["accessModes"],
        "storageClassName": kind,
        "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": path, "type": "Directory"},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        | {key: about[key] for key in ("namespace", "name", "uid")},
    }
    if kind == "local":
        there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}}
    made_by = {"pv.kubernetes.io/provisioned-by": "tests/folder"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": made_by},
        "spec": spec,
    }


def serve(api: Api, folder: Path) -> None:
    """Once around."""
    for claim in api.get(_CLAIMS)["items"]:
        if claim["status"].get("phase") == "Pending" and claim["spec"].get("storageClassName") in CLASSES:
            wanted = volume(claim, folder)
            if wanted is not None:
                try:
                    api.create(_VOLUMES, wanted)
                except RefusedError as error:
                    if error.status != 409:
                        raise
    for each in api.get(_VOLUMES)["items"]:
        if each["status"].get("phase") == "Released" and each["spec"].get("storageClassName") in CLASSES:
            api.delete(f"{_VOLUMES}/{each['metadata']['name']}")


def main() -> None:
    server, authority, token, folder = sys.argv[1:]
    api = Api(server, Path(authority), token)
    pause = threading.Event()
    while True:
        try:
            serve(api, Path(folder))
        except (RefusedError, OSError) as error:
            print(repr(error), flush=True)
        pause.wait(PERIOD_S)


if __name__ == "__main__":
    main()
