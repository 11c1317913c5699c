"""What was declared outlives the master that had it: real brokers, a real register and coordinator, an operator."""

from __future__ import annotations

from pathlib import Path

from gantry.broker.broker import Broker
from gantry.wire.codes import ResponseCode
from testkit.brokerplay import peer, send
from testkit.failoverplay import playing
from testkit.kube.declared import CLUSTER
from testkit.kube.declaredplay import Play
from testkit.turning import until

APPLIED = ("True", "Applied")


async def test_a_new_master_has_what_was_declared_and_is_the_one_that_is_asked_from_then_on(tmp_path: Path) -> None:
    async with playing(tmp_path, handover_s=0) as group:

        def broker_of(host: str) -> Broker | None:
            ordinal = int(host.removeprefix(f"{CLUSTER}-b0-"))
            return group.processes[ordinal].broker

        operator = Play(f"127.0.0.1:{group.names.port}", broker_of, groups=1)
        former = group.master
        operator.server.lead(0, former, (await group.record()).epoch)
        tea = operator.tea(queues={"write": 3, "read": 5}, limits={"bodyBytes": 9})
        shop = operator.shop(retry={"maxAttempts": 3})
        for key in tea, shop:
            await operator.once(key)
            assert operator.server.condition(key) == APPLIED
        async with peer(group.broker(former)) as client:
            assert (await client.call(send("tea", b"one"))).code == ResponseCode.SUCCESS
        await group.processes[former].stop()
        await operator.once(tea)
        assert operator.server.condition(tea) == ("False", "GroupUnavailable")
        await until(group.takes_writes)
        assert group.master != former

        leads = f"{CLUSTER}-b0-{group.master}.messaging.svc:10911"
        there = await operator.brokers.topic(leads, "tea")
        assert there is not None and (there.write_queues, there.read_queues) == (3, 5)
        assert there.attributes == {"message.size.max": "9"}
        treated = await operator.brokers.group(leads, "shop")
        assert treated is not None and treated.retry_times_max == 3
        await operator.brokers.delete_group(leads, "shop")  # as if it had not come over in time
        epoch = (await group.record()).epoch
        operator.server.lead(0, group.master, epoch)
        for key in tea, shop:
            await operator.once(key)
            assert operator.server.condition(key) == APPLIED
            assert [each["epoch"] for each in operator.server.status(key)["placements"]] == [epoch]
        treated = await operator.brokers.group(leads, "shop")
        assert treated is not None and treated.retry_times_max == 3
        await operator.brokers.close()
