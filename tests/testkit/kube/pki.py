"""Certificates and service-account tokens of a test cluster, by the `openssl` program.

One authority per cluster, in its folder; everything is valid for 30 days, so that nothing that leaks is worth much.
A service-account token is a JWT that the API server believes when its key signed it and its times and its account are
right: making one by hand is the only way to have one that is over, since the server gives none for less than ten
minutes.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

DAYS = "30"
OPENSSL_S = 30.0


class Authority:
    """ca.crt, ca.key and the service accounts' sa.key, sa.pub in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key("ca")
        self._openssl("req", "-x509", "-new", "-key", "ca.key", "-days", DAYS, "-subj", "/CN=test-ca", "-out", "ca.crt")
        self._openssl("genrsa", "-out", "sa.key", "2048")
        self._openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")

    @property
    def certificate(self) -> Path:
        """What a client trusts."""
        return self.folder / "ca.crt"

    def server(self, name: str, addresses: str) -> None:
        """NAME.crt and NAME.key for a server; `addresses` as in `IP:127.0.0.1,DNS:localhost`."""
        self._issue(name, f"/CN={name}", f"subjectAltName={addresses}")

    def client(self, name: str, subject: str) -> None:
        """NAME.crt and NAME.key for a client: `/O=GROUP/CN=USER`."""
        self._issue(name, subject, "extendedKeyUsage=clientAuth")

    def token(self, claims: Mapping[str, object]) -> str:
        """A service-account token with these claims, signed."""
        head = _text_of({"alg": "RS256", "kid": self._key_id()})
        signed = f"{head}.{_text_of(claims)}"
        signature = self._openssl("dgst", "-sha256", "-sign", "sa.key", given=signed.encode())
        return f"{signed}.{_url_safe(signature)}"

    def _key_id(self) -> str:
        """As Kubernetes names a key: the digest of its public half."""
        public = self._openssl("rsa", "-in", "sa.key", "-pubout", "-outform", "DER")
        return _url_safe(self._openssl("dgst", "-sha256", "-binary", given=public))

    def _issue(self, name: str, subject: str, extension: str) -> None:
        self._key(name)
        (self.folder / f"{name}.ext").write_text(f"{extension}\n")
        self._openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
        signer = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS, "-extfile", f"{name}.ext"]
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-out", f"{name}.crt")

    def _key(self, name: str) -> None:
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")

    def _openssl(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            ["openssl", *arguments], cwd=self.folder, input=given, capture_output=True, timeout=OPENSSL_S, check=False
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout


def _text_of(value: Mapping[str, object]) -> str:
    return _url_safe(json.dumps(value).encode())


def _url_safe(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
