"""The subcommand `gantry guarantee resend`: the process that sends again, or one pass of it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from gantry.cli.logs import start_logging
from gantry.cli.output import show_json
from gantry.cli.serve import reachable, serve
from gantry.errors import ConfigError
from gantry.guarantee.databases import Database
from gantry.guarantee.mail import Mail, mail_settings
from gantry.guarantee.people import Channel, TellingRules
from gantry.guarantee.resending import ResendCounts, ResendRules
from gantry.guarantee.resendservice import ResendService, ResendServiceSettings
from gantry.guarantee.statements import Statements
from gantry.guarantee.webhook import Webhook

_SECRET_BYTES_MAX = 4096


def run_resend(arguments: argparse.Namespace, database: Database, say: Statements) -> int:
    """Run until asked to stop, or one pass. Return the exit code."""
    start_logging(arguments)
    channels = _channels(arguments)
    settings = _settings(arguments)
    if arguments.once:
        counts = asyncio.run(_once(ResendService(database, say, channels, settings)))
        show_json(asdict(counts))
        return 1 if counts.refused else 0

    def make(end: Callable[[], None]) -> ResendService:
        return ResendService(database, say, channels, settings)

    def ready(service: ResendService) -> str:
        http = "" if service.http_port is None else f" http={reachable(arguments.bind, service.http_port)}"
        return f"resend every={arguments.every:g}s{http}"

    return serve(make, ready, ports={"--http-port": arguments.http_port})


def _settings(arguments: argparse.Namespace) -> ResendServiceSettings:
    resends = ResendRules(
        arguments.resends_max, arguments.backoff, arguments.backlog, groups=tuple(arguments.group)
    )
    return ResendServiceSettings(
        arguments.namesrv,
        0.0 if arguments.once else arguments.every,
        arguments.bind,
        arguments.http_port if arguments.http_port >= 0 and not arguments.once else None,
        resends,
        TellingRules(stuck_after_s=arguments.stuck_after),
    )


async def _once(service: ResendService) -> ResendCounts:
    await service.start()
    try:
        return await service.once()
    finally:
        await service.stop()


def _channels(arguments: argparse.Namespace) -> list[Channel]:
    found: list[Channel] = []
    if arguments.mail_server or arguments.mail_to:
        if not arguments.mail_server:
            raise ConfigError("--mail-to needs --mail-server smtp://USER:PASSWORD@HOST:PORT")
        found.append(Mail(mail_settings(arguments.mail_server, arguments.mail_from, tuple(arguments.mail_to))))
    if arguments.webhook:
        if not arguments.webhook_secret_file:
            raise ConfigError("--webhook needs --webhook-secret-file, by which its receiver knows who posts")
        path = Path(arguments.webhook_secret_file)
        try:
            secret = path.read_text(encoding="utf-8")[: _SECRET_BYTES_MAX + 1].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: the secret of the webhook cannot be read: {error}") from error
        found.append(Webhook(arguments.webhook, secret))
    return found
