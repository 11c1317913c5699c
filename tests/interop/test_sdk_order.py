"""Order of RocketMQ 5's own consumers, through the proxy: a message waits for the one before it."""

from interop.grpcclients import wait_until
from interop.sdkplay import Play


def expected(count: int, prefix: str) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def test_a_group_in_order_keeps_it_while_messages_fail(plays: list[Play]) -> None:
    for play in plays:
        play.prepare("FIFO", is_orderly=True)
        for group in ("one", "two"):
            play.send(5, prefix=group, group=group)
        play.consume("subscribe", fail_times=1)
    for play in plays:
        done = play.has_got("done", 10)
        for group in ("one", "two"):
            assert [body for body in done if body.startswith(group)] == expected(5, group), play.topic


def test_a_group_in_order_goes_on_behind_a_dead_letter(plays: list[Play]) -> None:
    for play in plays:
        play.prepare("FIFO", is_orderly=True, retries=1)
        play.send(3, group="one")
        play.consume("subscribe", fail="always")
    for play in plays:
        assert wait_until(play.dead, lambda seen: len(seen) >= 3) == expected(3, "m")
        failed = play.got("failed")
        assert sorted(set(failed), key=failed.index) == expected(3, "m")
