"""A PostgreSQL that pods of a test cluster reach as `postgres.shop`, with a password; the tests reach it by a socket.

It runs in the control plane's network as the user `postgres`, whom the Debian package makes: PostgreSQL refuses root.
"""

from __future__ import annotations

import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from testkit.kube.cluster import Cluster
from testkit.pairplay import until

NAMESPACE, NAME, PORT = "shop", "postgres", 5432
_STEP_S = 120.0
_SERVICE = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: v1
kind: Service
metadata: {{name: {NAME}, namespace: {NAMESPACE}}}
spec: {{ports: [{{name: sql, port: {PORT}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {NAME}-1
  namespace: {NAMESPACE}
  labels: {{kubernetes.io/service-name: {NAME}, endpointslice.kubernetes.io/managed-by: tests}}
addressType: IPv4
endpoints: [{{addresses: [ADDRESS], conditions: {{ready: true}}}}]
ports: [{{name: sql, port: {PORT}}}]
"""


@contextmanager
def reachable(cluster: Cluster, user: str, password: str, database: str) -> Iterator[str]:
    """How tests connect, as the superuser; pods connect as `user`, whose the database is, with the password."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    if not found:
        pytest.skip("missing initdb and postgres; install the Debian package postgresql")
    owner = pwd.getpwnam("postgres")
    as_owner = ("setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups")
    with ExitStack() as left:
        folder = Path(tempfile.mkdtemp(prefix="gantry-postgres-"))
        left.callback(shutil.rmtree, folder)
        shutil.chown(folder, owner.pw_uid, owner.pw_gid)
        words = (*as_owner, str(found[-1] / "initdb"), "-D", str(folder / "data"), "--auth=trust", "--no-sync")
        subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=_STEP_S)
        with (folder / "data" / "pg_hba.conf").open("a") as allowed:
            allowed.write("host all all 0.0.0.0/0 scram-sha-256\n")
        address = cluster.network.address(0)
        settings = {"listen_addresses": address, "port": PORT, "unix_socket_directories": folder, "fsync": "off"}
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        cluster.daemons.start(NAME, *as_owner, str(found[-1] / "postgres"), "-D", str(folder / "data"), *flags)
        left.callback(cluster.daemons.stop, NAME)
        conninfo = f"host={folder} port={PORT} user=postgres"
        until(lambda: _answers(conninfo), "PostgreSQL answers", _STEP_S)
        with psycopg.connect(f"{conninfo} dbname=postgres", autocommit=True) as connection:
            account, secret, made = sql.Identifier(user), sql.Literal(password), sql.Identifier(database)
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(account, secret))
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(made, account))
        cluster.admin.apply(_SERVICE.replace("ADDRESS", address))
        yield f"{conninfo} dbname={database}"


def _answers(conninfo: str) -> bool:
    try:
        psycopg.connect(f"{conninfo} dbname=postgres").close()
    except psycopg.OperationalError:
        return False
    return True
