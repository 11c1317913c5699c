"""A channel to people by mail: smtplib in a thread, with STARTTLS or TLS, and a login where there is one.

    smtp://user:password@mail.example.org:587       STARTTLS, which the server has to offer where there is a login
    smtps://user:password@mail.example.org          TLS from the first byte, port 465
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

from gantry.errors import ConfigError
from gantry.guarantee.people import Digest

_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class MailSettings:
    """Where mails go; `host` and so on are of the mail server."""

    sender: str
    recipients: tuple[str, ...]
    host: str
    port: int
    is_tls: bool = False
    user: str = ""
    password: str = ""


def mail_settings(address: str, sender: str, recipients: tuple[str, ...]) -> MailSettings:
    """Return the settings of an address `smtp://...` or `smtps://...`; ConfigError when it is none."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the address of the mail server is none: {error}") from error
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise ConfigError("the address of the mail server has to be smtp://USER:PASSWORD@HOST:PORT, or smtps://")
    if not sender or not recipients or any("\n" in each or "\r" in each for each in (sender, *recipients)):
        raise ConfigError("a mail needs a sender and recipients; give --mail-from and --mail-to")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    is_tls = parts.scheme == "smtps"
    return MailSettings(sender, recipients, parts.hostname, port or (465 if is_tls else 25), is_tls, user, password)


class Mail:
    """Sends each digest as one mail to all recipients."""

    name = "mail"

    def __init__(self, settings: MailSettings) -> None:
        self._settings = settings

    async def tell(self, digest: Digest) -> None:
        """Send the mail; smtplib's errors, also when the server refuses one of the recipients."""
        await asyncio.to_thread(self._send, self.message(digest))

    def message(self, digest: Digest) -> EmailMessage:
        """Return the mail; its id is the same for the same cases."""
        settings = self._settings
        found = EmailMessage()
        found["From"], found["To"] = settings.sender, ", ".join(settings.recipients)
        found["Subject"] = digest.subject
        found["Message-ID"] = f"<{digest.key}@gantrymq.guarantee>"
        found["Auto-Submitted"] = "auto-generated"
        found.set_content(digest.text())
        return found

    def _send(self, message: EmailMessage) -> None:
        settings, context = self._settings, ssl.create_default_context()
        if settings.is_tls:
            server: smtplib.SMTP = smtplib.SMTP_SSL(settings.host, settings.port, timeout=_TIMEOUT_S, context=context)
        else:
            server = smtplib.SMTP(settings.host, settings.port, timeout=_TIMEOUT_S)
        with server:
            server.ehlo()
            if not settings.is_tls and (settings.user or server.has_extn("starttls")):
                server.starttls(context=context)  # raises where it is not offered: no password in plain text
                server.ehlo()
            if settings.user:
                server.login(settings.user, settings.password)
            refused = server.send_message(message)
        if refused:
            raise smtplib.SMTPRecipientsRefused(refused)
