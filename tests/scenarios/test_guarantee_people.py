"""People are told: by a real mail server and a real HTTP receiver, each case once by each, whatever these do."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import smtplib
import ssl
from pathlib import Path

import pytest

from gantry.errors import ConfigError
from gantry.guarantee.mail import Mail, mail_settings
from gantry.guarantee.people import Case, Channel, Digest, Teller, TellingRules
from gantry.guarantee.resending import ResendRules
from gantry.guarantee.threads import StillBusyError
from gantry.guarantee.webhook import Webhook, signature
from testkit.guaranteeshop import SAY, Ahead, Stubs
from testkit.mailserver import Post, certificate, hook_server, mail_server, only

SECRET = "0123456789abcdef-secret"
OPS, BOSS = "ops@example.org", "boss@example.org"
DIGEST = Digest((Case("stuck", "packing", "m1", "Orders", "order-1", 2, 1_000),))


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    """Three cases: exhausted, stuck, overdue."""
    made = Stubs(tmp_path / "stubs.db")
    made.declare("packing")
    made.write("exhausted", "stuck", "overdue")
    made.do("UPDATE guarantee_delivery SET resends = 5 WHERE message_id = 'exhausted'")
    made.log("stuck", "packing", "refused")
    made.place("overdue", 100)
    return made


def mail_to(post: Post, *recipients: str, host: str = "127.0.0.1", login: str = "") -> Mail:
    return Mail(mail_settings(f"smtp://{login}{host}:{post.port}", "gantry@example.org", recipients or (OPS,)))


def teller(stubs: Stubs, clock: Ahead, *channels: Channel, **rules: object) -> Teller:
    given = TellingRules(**{"pause_s": 10.0, **rules})  # type: ignore[arg-type]
    return Teller(stubs.database, SAY, channels, clock, ResendRules(), given)


async def test_each_case_is_told_once_by_each_channel_and_a_case_that_is_sent_again_is_a_new_one(
    stubs: Stubs, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Ahead()
    async with mail_server() as post, hook_server() as hook:
        told = teller(stubs, clock, mail_to(post, OPS, BOSS), Webhook(hook.url, SECRET))
        assert await told.one_pass(["packing"]) == 3
        clock.ms += 10_000_000
        assert await told.one_pass(["packing"]) == 0
        ((recipients, mail),) = post.mails
        assert sorted(recipients) == [BOSS, OPS]
        assert mail["Subject"] == "3 messages without effect in packing"
        assert mail["Date"] and mail["Message-ID"]
        text = mail.get_content()
        for reason in ("exhausted", "stuck", "overdue"):
            assert f"{reason}: message {reason} with keys order-{reason} of topic Orders for group packing" in text
        ((headers, body),) = hook.posts
        assert {case["reason"] for case in json.loads(body)["cases"]} == {"exhausted", "stuck", "overdue"}
        assert headers["Idempotency-Key"] == json.loads(body)["key"]
        wanted = signature(SECRET.encode(), headers["X-Gantry-Timestamp"], body)
        assert hmac.compare_digest(headers["X-Gantry-Signature"], wanted)
        assert "order-stuck" not in caplog.text  # logs have no keys
        # The overdue group comes back, the message is sent again, and is exhausted later: people hear of it.
        stubs.do(
            "UPDATE guarantee_delivery SET resends = 5, told_at_ms = NULL, tell_after_ms = 0 "
            "WHERE message_id = 'overdue'"
        )
        assert await told.one_pass(["packing"]) == 1


async def test_a_claim_makes_an_old_case_a_new_one(stubs: Stubs) -> None:
    stubs.do("UPDATE guarantee_delivery SET told_at_ms = 5, tell_after_ms = 7")
    stubs.database.run_now(_claimed("overdue"))
    text = "SELECT told_at_ms, tell_after_ms FROM guarantee_delivery WHERE message_id = 'overdue'"
    assert stubs.ask(text) == [(None, 0)]


def _claimed(message_id: str):  # type: ignore[no-untyped-def]
    from gantry.guarantee.steps import Query

    named = {"message_id": message_id, "consumer_group": "packing", "resends": 0}
    answer = yield Query(SAY.claim, {**named, "now_ms": 0, "changed_by": "test", "next_resend_at_ms": 1})
    assert answer.changed == 1


async def test_of_several_processes_one_tells_and_the_next_one_only_when_it_died(stubs: Stubs) -> None:
    clock = Ahead()
    async with hook_server() as hook:
        several = [teller(stubs, clock, Webhook(hook.url, SECRET)) for _ in range(3)]
        counts = await asyncio.gather(*(each.one_pass(["packing"]) for each in several))
        assert sum(counts) == 3
        keys = [case["message_id"] for _, body in hook.posts for case in json.loads(body)["cases"]]
        assert sorted(keys) == ["exhausted", "overdue", "stuck"]


async def test_a_channel_that_takes_nothing_gets_the_same_digest_again_and_the_other_one_does_not(
    stubs: Stubs,
) -> None:
    clock = Ahead()
    async with mail_server() as post, hook_server() as hook:
        hook.answers = [500, 307, 503, 204]
        first = teller(stubs, clock, mail_to(post), Webhook(hook.url, SECRET), claim_s=100.0)
        second = teller(stubs, clock, mail_to(post), Webhook(hook.url, SECRET), claim_s=100.0)
        assert await first.one_pass(["packing"]) == 0
        assert (first.waiting, first.failures) == (3, {"mail": 0, "webhook": 1})
        assert await first.one_pass(["packing"]) == 0
        assert len(hook.posts) == 1  # the pause is not over
        told, passes = 0, 0
        while not told and passes < 20:
            # Longer than the claim in total: it is renewed, so nobody else tells meanwhile.
            clock.ms += 40_000
            told = await first.one_pass(["packing"])
            assert await second.one_pass(["packing"]) == 0
            passes += 1
        assert told == 3 and passes > 2
        assert len(post.mails) == 1
        assert len({headers["Idempotency-Key"] for headers, _ in hook.posts}) == 1
        assert len(hook.posts) == 4


async def test_after_the_death_of_the_teller_another_one_tells_when_the_claim_ran_out(stubs: Stubs) -> None:
    clock = Ahead()
    async with hook_server() as hook:
        hook.answers = [500, 204]
        dead = teller(stubs, clock, Webhook(hook.url, SECRET))
        assert await dead.one_pass(["packing"]) == 0
        heir = teller(stubs, clock, Webhook(hook.url, SECRET))
        assert await heir.one_pass(["packing"]) == 0
        clock.ms += 1_000_000
        assert await heir.one_pass(["packing"]) == 3
        assert len({headers["Idempotency-Key"] for headers, _ in hook.posts}) == 1


async def test_a_receiver_that_hangs_holds_up_neither_the_other_channel_nor_the_database(stubs: Stubs) -> None:
    clock = Ahead()
    async with mail_server() as post, hook_server() as hook:
        hook.answers = [0]
        webhook = Webhook(hook.url, SECRET)
        told = teller(stubs, clock, webhook, mail_to(post), timeout_s=0.5)
        assert await told.one_pass(["packing"]) == 0
        assert len(post.mails) == 1
        post.hangs = True
        mail = mail_to(post)
        for channel in (mail, webhook):
            for _ in range(20):  # more than the loop's shared threads
                with pytest.raises((TimeoutError, StillBusyError)):
                    async with asyncio.timeout(0.05):
                        await channel.tell(DIGEST)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 30) == "free"


async def test_a_channel_that_is_down_for_days_does_not_silence_the_other_one(
    stubs: Stubs, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Ahead()
    async with mail_server() as post, hook_server() as hook:
        hook.answers = [500] * 1000
        told = teller(stubs, clock, mail_to(post), Webhook(hook.url, SECRET))
        for number in range(20):
            stubs.write(f"new{number}")
            clock.ms += 60_000
            await told.one_pass(["packing"])
        assert len(post.mails) == 20
        assert told.waiting > 0 and "webhook took no digest for long" in caplog.text


async def test_full_digests_come_with_growing_pauses(stubs: Stubs) -> None:
    clock = Ahead()
    async with hook_server() as hook:
        told = teller(stubs, clock, Webhook(hook.url, SECRET), cases_max=1)
        counts = []
        for _ in range(6):
            counts.append(await told.one_pass(["packing"]))
            clock.ms += 5_000
        assert sum(counts) == 2  # at 0, and 10 s later; the third waits 20 s
        clock.ms += 60_000
        assert await told.one_pass(["packing"]) == 1


async def test_a_mail_goes_by_starttls_with_a_login_and_never_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    options = {"tls_context": context, "authenticator": only("gantry", "pa:ss"), "auth_required": True}
    async with mail_server(**options) as post:
        login = "gantry:pa%3Ass@"
        with pytest.raises(ssl.SSLCertVerificationError):
            await mail_to(post, host="localhost", login=login).tell(DIGEST)
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        await mail_to(post, host="localhost", login=login).tell(DIGEST)
        assert len(post.mails) == 1
        with pytest.raises(smtplib.SMTPAuthenticationError):
            await mail_to(post, host="localhost", login="gantry:wrong@").tell(DIGEST)
    options = {"authenticator": only("gantry", "pa:ss"), "auth_require_tls": False}  # it would take the password
    async with mail_server(**options) as plain:
        with pytest.raises(smtplib.SMTPNotSupportedError):
            await mail_to(plain, login=login).tell(DIGEST)
        assert plain.mails == []


async def test_refused_recipients_get_the_mail_later_or_never_and_the_others_once() -> None:
    async with mail_server() as post:
        mail = mail_to(post, OPS, BOSS)
        post.refuses = {BOSS: "451 greylisted"}
        with pytest.raises(Exception, match=f"the mail server refuses {BOSS}"):
            await mail.tell(DIGEST)
        post.refuses = {}
        await mail.tell(DIGEST)
        assert [recipients for recipients, _ in post.mails] == [[OPS], [BOSS]]
        post.refuses = {BOSS: "550 no such user"}
        await mail.tell(DIGEST)  # somebody has it
        post.refuses = {BOSS: "550 no such user", OPS: "550 no such user"}
        with pytest.raises(Exception, match="the mail server refuses"):
            await mail.tell(DIGEST)
        post.refuses, post.says_at_data = {}, "554 no spam, please"
        with pytest.raises(smtplib.SMTPDataError):
            await mail.tell(DIGEST)
    with pytest.raises(OSError):
        await mail.tell(DIGEST)  # it is down


async def test_a_server_that_speaks_something_else_is_an_error() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xff\xfe hello\r\n" * 3)
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for channel in (
        Mail(mail_settings(f"smtp://127.0.0.1:{port}", OPS, (OPS,))),
        Webhook(f"http://127.0.0.1:{port}/", SECRET),
    ):
        with pytest.raises(Exception) as caught:
            await channel.tell(DIGEST)
        assert not isinstance(caught.value, (AssertionError, TimeoutError))
    server.close()


@pytest.mark.parametrize(
    ("url", "secret", "says"),
    [
        ("ftp://example.org/token", SECRET, "has to be http://HOST"),
        ("https://user:token@example.org/", SECRET, "the signature instead"),
        ("https://example.org:token/", SECRET, "wrong port or host"),
        ("https://example.org/a token", SECRET, "written as %XX"),
        ("https://example.org/", "token", "at least 16 characters"),
    ],
)
def test_a_wrong_webhook_is_refused_without_its_secret(url: str, secret: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Webhook(url, secret)
    assert "token" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "sender", "to", "says"),
    [
        ("mail.example.org", OPS, (OPS,), "has to be smtp://"),
        ("smtp://user:token@host:port", OPS, (OPS,), "wrong port or host"),
        ("smtp://host", "", (OPS,), "give --mail-from"),
        ("smtp://host", OPS, ("ops@example.org\nBcc: x@y",), "no mail address"),
        ("smtp://host", OPS, ("ops",), "no mail address"),
    ],
)
def test_a_wrong_mail_address_is_refused_without_its_secret(
    address: str, sender: str, to: tuple[str, ...], says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        mail_settings(address, sender, to)
    assert "token" not in str(caught.value)


def test_texts_from_outside_stay_in_one_line_and_are_cut() -> None:
    case = Case("stuck", "a\nBcc: x", "m\r\n" + "y" * 500, "Orders", "k" * 100, 1, 10**18)
    assert case.line().isprintable() and len(case.line()) < 700
    assert Digest((case,)).subject.isprintable()
    many = Digest((case,) * 500)
    assert "and 300 more" in many.text() and len(json.loads(many.document())["cases"]) == 500
    logging.getLogger(__name__).debug(many.key)
