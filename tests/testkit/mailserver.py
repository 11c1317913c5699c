"""A real SMTP server (aiosmtpd) with a login behind STARTTLS, and an HTTP receiver, both as bad as a test wants."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost that signs itself: its file and that of its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


@dataclass
class Post:
    """A mail server's view; `refuses` answers recipients, `hangs` lets it answer DATA never."""

    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    refuses: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    says_at_data: str = "250 OK"
    port: int = 0
    attempts: int = 0

    async def handle_RCPT(  # noqa: N802  aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuses:
            self.attempts += 1
            return self.refuses[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.attempts += 1
        if self.hangs:
            await asyncio.sleep(3600)
        if self.says_at_data.startswith("2"):
            found = message_from_bytes(envelope.content, policy=default)  # type: ignore[arg-type]
            self.mails.append((list(envelope.rcpt_tos), found))
        return self.says_at_data


@asynccontextmanager
async def mail_server(**options: Any) -> AsyncIterator[Post]:
    """Run one on this loop; options are those of aiosmtpd's SMTP."""
    post = Post()
    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(post, hostname="localhost", **options), "127.0.0.1", 0
    )
    post.port = server.sockets[0].getsockname()[1]
    try:
        yield post
    finally:
        server.close()


def only(user: str, password: str) -> Callable[..., AuthResult]:
    """An authenticator that knows one user."""

    def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        given = getattr(data, "login", b""), getattr(data, "password", b"")
        return AuthResult(success=given == (user.encode(), password.encode()), handled=False)

    return authenticate


@dataclass
class Hook:
    """A receiver of webhooks; `answers` are statuses in order (the last one stays), 0: it hangs."""

    answers: list[int] = field(default_factory=lambda: [204])
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.posts.append((dict(request.headers), await request.read()))
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not status:
            await asyncio.sleep(3600)
        return web.Response(status=status, headers={"Location": "/elsewhere"} if status == 307 else {})


@asynccontextmanager
async def hook_server() -> AsyncIterator[Hook]:
    """Run one on this loop."""
    hook = Hook()
    app = web.Application()
    app.router.add_post("/{path:.*}", hook.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook?team=ops"
    try:
        yield hook
    finally:
        await runner.cleanup()
