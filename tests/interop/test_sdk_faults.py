"""RocketMQ 5's own clients when proxy or broker are killed and started again: they go on, and nothing is lost."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop import grpcclients, proxies, servers
from interop.grpcclients import bodies, insist, stored, wait_until
from interop.sdkplay import Play
from testkit.patience import HANG_S

FALLS = 3
LOAD_MIN = 60  # acknowledged sends of each client from fall to fall
LONG_S = 3600
WANTED = {*(f"before-{number}" for number in range(5)), *(f"after{number}-0" for number in range(5))}


@dataclass(frozen=True)
class Fall:
    """Ends a process and starts it again."""

    end: Callable[[], None]
    start: Callable[[], None]

    def happen(self) -> None:
        self.end()
        self.start()


@pytest.fixture
def plays(restarts: None, plays: list[Play]) -> list[Play]:
    """Clients that no other test has."""
    return plays


@pytest.fixture(params=["proxy-kill", pytest.param("proxy-stop", marks=pytest.mark.slow), "broker-kill"])
def fall(request: pytest.FixtureRequest, proxy: proxies.Proxy, server: servers.Server) -> Fall:
    which, how = request.param.split("-")
    falling = proxy if which == "proxy" else server
    return Fall(getattr(falling, how), falling.start)


def test_clients_go_on_and_their_leases_stay(plays: list[Play], fall: Fall) -> None:
    leasing = [Play(play.driver, play.server, f"{play.topic}Leased") for play in plays]
    leased = []
    for play, other in zip(plays, leasing, strict=True):
        play.prepare()
        play.consume("subscribe")
        play.send(5, prefix="before")
        other.prepare()
        other.consume("simple")
        other.send(3)
        leased.append(other.receive(3, LONG_S))
    for play in plays:
        play.has_got("done", 5)
    fall.happen()
    for play in plays:
        play.resend(5, prefix="after")
    for other, (back, *done) in zip(leasing, leased, strict=True):
        insist(lambda other=other, done=done: other.settle("ack", done))
        insist(lambda other=other, back=back: other.settle("change", [back], invisible_s=1))
        (again,) = other.receive(1, LONG_S)
        assert again["body"] == back["body"]
        other.settle("ack", [again])
    for play in plays:
        wait_until(lambda play=play: WANTED - set(play.got("done")), lambda left: not left)


@pytest.fixture
def pairs(
    restarts: None, every_sdk: None, proxy: proxies.Proxy, server: servers.Server, name: str, tmp_path: Path
) -> Iterator[list[Play]]:
    """Clients that know two proxies, of which the first is the one of all tests; Node's client takes only one."""
    with proxies.serving(tmp_path / "second", server.name_server) as second:
        endpoints, made = f"{proxy.endpoints};{second.endpoints}", []
        try:
            for sdk in ("python", "java"):
                driver = grpcclients.sdk(sdk).start(tmp_path / sdk, endpoints)
                made.append(Play(driver, server, f"{name}{sdk}"))
            yield made
        finally:
            for play in made:
                play.driver.quit()


def test_clients_go_on_at_another_proxy(pairs: list[Play], proxy: proxies.Proxy) -> None:
    for play in pairs:
        play.prepare()
        play.consume("subscribe")
        play.send(5, prefix="before")
    for play in pairs:
        play.has_got("done", 5)
    proxy.kill()
    for play in pairs:
        play.resend(5, prefix="after")
    for play in pairs:
        wait_until(lambda play=play: WANTED - set(play.got("done")), lambda left: not left)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_falls_under_load_lose_nothing(plays: list[Play], fall: Fall) -> None:
    """What a killed proxy had received, and not passed on, comes when its leases of 60 s end."""
    for play in plays:
        play.prepare()
        play.consume("subscribe")
        play.driver.call("load", topic=play.topic, prefix="l")
    for _ in range(FALLS):
        counts = [len(play.got("acked")) + LOAD_MIN for play in plays]
        for play, count in zip(plays, counts, strict=True):
            play.has_got("acked", count)
        fall.happen()
    for play in plays:
        play.driver.call("unload")
        play.driver.event("unloaded", HANG_S)
        acked = set(play.got("acked"))
        assert acked <= set(bodies(stored(play.server, play.topic)))
        wait_until(lambda play=play, acked=acked: acked - set(play.got("done")), lambda left: not left)
