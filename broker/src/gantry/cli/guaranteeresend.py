"""The subcommand `gantry guarantee resend`: the process that sends again, or one pass of it."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from gantry.cli.logs import start_logging
from gantry.cli.output import show_one
from gantry.cli.serve import reachable, serve
from gantry.errors import ConfigError
from gantry.guarantee.databases import Database
from gantry.guarantee.mail import Mail, mail_settings
from gantry.guarantee.people import Channel, TellingRules
from gantry.guarantee.resending import ResendRules
from gantry.guarantee.resendservice import ResendService, ResendServiceSettings
from gantry.guarantee.statements import Statements
from gantry.guarantee.webhook import Webhook

_SECRET_CHARACTERS_MAX = 4096


def run_resend(arguments: argparse.Namespace, database: Database, say: Statements) -> int:
    """Run until asked to stop, or one pass. Return the exit code."""
    start_logging(arguments)
    channels = _channels(arguments)
    settings = _settings(arguments)
    if arguments.once:
        return asyncio.run(_once(ResendService(database, say, channels, settings), arguments.output))

    def make(end: Callable[[], None]) -> ResendService:
        return ResendService(database, say, channels, settings)

    def ready(service: ResendService) -> str:
        return "resend" if service.http_port is None else f"http={reachable(arguments.bind, service.http_port)}"

    return serve(make, ready, ports={"--http-port": arguments.http_port})


def _settings(arguments: argparse.Namespace) -> ResendServiceSettings:
    groups = tuple(arguments.group)
    resends = ResendRules(arguments.resends_max, arguments.backoff, arguments.backlog, groups=groups)
    return ResendServiceSettings(
        arguments.namesrv,
        0.0 if arguments.once else arguments.every,
        arguments.tell_every,
        arguments.timeout,
        arguments.bind,
        arguments.http_port if arguments.http_port >= 0 and not arguments.once else None,
        resends,
        TellingRules(stuck_after_s=arguments.stuck_after, overdue_after_s=arguments.overdue_after),
    )


async def _once(service: ResendService, output: str) -> int:
    await service.start()
    try:
        try:
            counts = await service.resend()
        finally:
            told = await service.tell()  # also of messages that no broker takes
    finally:
        await service.stop()
    found = {**asdict(counts), "failed": " ".join(sorted(set(counts.failed))), "told": told}
    show_one({**found, "untold": service.teller.waiting}, output)
    return 1 if counts.refused or counts.failed or service.teller.waiting else 0


def _channels(arguments: argparse.Namespace) -> list[Channel]:
    found: list[Channel] = []
    server = _address(arguments.mail_server or os.environ.get("GANTRY_GUARANTEE_MAIL", ""))
    if server or arguments.mail_to:
        if not server:
            raise ConfigError("--mail-to needs --mail-server smtp://USER:PASSWORD@HOST:PORT")
        found.append(Mail(mail_settings(server, arguments.mail_from, tuple(arguments.mail_to))))
    if arguments.webhook:
        if not arguments.webhook_secret_file:
            raise ConfigError("--webhook needs --webhook-secret-file, by which its receiver knows who posts")
        found.append(Webhook(_address(arguments.webhook), _text_of(arguments.webhook_secret_file)))
    return found


def _address(text: str) -> str:
    return _text_of(text[1:]) if text.startswith("@") else text


def _text_of(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_SECRET_CHARACTERS_MAX + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if len(text) > _SECRET_CHARACTERS_MAX:
        raise ConfigError(f"{path} has more than {_SECRET_CHARACTERS_MAX} characters; is it the right file?")
    return text
