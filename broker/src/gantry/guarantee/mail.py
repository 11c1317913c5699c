"""A channel to people by mail: smtplib in a thread, with STARTTLS or TLS, and a login where there is one.

    smtp://user:password@mail.example.org:587       STARTTLS, which the server has to offer where there is a login
    smtps://user:password@mail.example.org          TLS from the first byte, port 465

A recipient that the server refuses for good is logged and left out, as long as another one gets the mail.  One that it
refuses for now gets the mail with the next offer, and the others do not get it twice.
"""

from __future__ import annotations

import contextlib
import logging
import smtplib
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import unquote, urlsplit

from gantry.clock import Clock, SystemClock
from gantry.errors import ConfigError, GantryError
from gantry.guarantee.people import Digest
from gantry.guarantee.threads import OneThread

log = logging.getLogger(__name__)

_TIMEOUT_S = 20.0  # of one answer
_DIGESTS_MAX = 64  # of which some recipients have theirs
_PERMANENT = 500


class RecipientsError(GantryError):
    """The server refuses recipients."""


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
    except ValueError:  # its text may have the password
        raise ConfigError("the address of the mail server has a wrong port or host") from None
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise ConfigError("the address of the mail server has to be smtp://USER:PASSWORD@HOST:PORT, or smtps://")
    if not sender or not recipients:
        raise ConfigError("a mail needs a sender and recipients; give --mail-from and --mail-to")
    for each in (sender, *recipients):
        if not each.isascii() or not each.isprintable() or " " in each or not all(each.partition("@")):
            raise ConfigError(f"{each[:80]!r} is no mail address; give NAME@HOST in ASCII")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    is_tls = parts.scheme == "smtps"
    return MailSettings(sender, recipients, parts.hostname, port or (465 if is_tls else 25), is_tls, user, password)


class Mail:
    """Sends each digest as one mail to all recipients."""

    name = "mail"

    def __init__(self, settings: MailSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._thread = OneThread("gantry-guarantee-mail")
        self._have: dict[str, set[str]] = {}  # by digest: recipients that have it, or never get it

    async def tell(self, digest: Digest) -> None:
        """Send the mail; smtplib's errors, RecipientsError when some recipient may get it later or none gets it."""
        calls: list[smtplib.SMTP] = []
        await self._thread.run(lambda: self._send(digest, calls), lambda: _hang_up(calls))

    def message(self, digest: Digest) -> EmailMessage:
        """Return the mail; its id is the same for the same cases."""
        settings = self._settings
        found = EmailMessage()
        found["From"], found["To"] = settings.sender, ", ".join(settings.recipients)
        found["Subject"] = digest.subject
        found["Date"] = format_datetime(datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC))
        found["Message-ID"] = f"<{digest.key}@gantrymq.guarantee>"
        found["Auto-Submitted"] = "auto-generated"
        found.set_content(digest.text())
        return found

    def _send(self, digest: Digest, calls: list[smtplib.SMTP]) -> None:
        have = self._have.setdefault(digest.key, set())
        while len(self._have) > _DIGESTS_MAX:
            self._have.pop(next(iter(self._have)))
        left = [each for each in self._settings.recipients if each not in have]
        server = self._connected(calls)
        try:
            refused = server.send_message(self.message(digest), to_addrs=left)
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
        finally:
            with contextlib.suppress(smtplib.SMTPException, OSError):  # it has the mail, or not, by now
                server.quit()
            server.close()
        have.update(each for each in left if each not in refused)
        later = sorted(each for each, (code, _) in refused.items() if code < _PERMANENT)
        for each in sorted(set(refused) - set(later)):
            log.warning("the mail server refuses %s: %s", each, refused[each])
        if later or not have:
            raise RecipientsError(f"the mail server refuses {', '.join(later or sorted(refused))}")
        self._have.pop(digest.key, None)

    def _connected(self, calls: list[smtplib.SMTP]) -> smtplib.SMTP:
        settings, context = self._settings, ssl.create_default_context()
        if settings.is_tls:
            server: smtplib.SMTP = smtplib.SMTP_SSL(settings.host, settings.port, timeout=_TIMEOUT_S, context=context)
        else:
            server = smtplib.SMTP(settings.host, settings.port, timeout=_TIMEOUT_S)
        calls.append(server)
        try:
            server.ehlo()
            if not settings.is_tls and (settings.user or server.has_extn("starttls")):
                server.starttls(context=context)  # raises where it is not offered: no password in plain text
                server.ehlo()
            if settings.user:
                server.login(settings.user, settings.password)
        except BaseException:
            server.close()
            raise
        return server


def _hang_up(calls: list[smtplib.SMTP]) -> None:
    for server in calls:
        if server.sock is not None:
            with contextlib.suppress(OSError):
                server.sock.shutdown(socket.SHUT_RDWR)
