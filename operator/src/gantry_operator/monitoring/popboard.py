"""The dashboard of popped messages: how many are leased, what becomes of them, whether ended leases wait."""

from __future__ import annotations

from gantry_operator.monitoring.panels import Dashboard, Query, Row
from gantry_operator.monitoring.queries import OF_BROKERS, lines, of, rate, stat

BOARD = Dashboard(
    "gantrymq-pop",
    "GantryMQ: popped messages",
    (
        Row(
            "Now",
            (
                stat("Leased", f"sum({of('gantry_pop_open_messages')})", "Popped and not acknowledged."),
                stat("Waiting requests", f"sum({of('gantry_pop_held')})", "Pops and notifications that are held."),
                stat("Clients kept alive", f"sum({of('gantry_pop_owners')})", "Brokers renew their leases."),
                stat(
                    "Revive is late",
                    f"max({of('rocketmq_pop_revive_latency_milliseconds')}) / 1000",
                    "How long the first ended lease waits to be handled. Seconds: the broker is busy or its disk full.",
                    "s",
                    30,
                ),
            ),
        ),
        Row(
            "Consumers",
            (
                lines(
                    "Popped",
                    "By consumer group and topic; retries count for their topic.",
                    Query(
                        rate("gantry_group_messages_popped_total", by="consumer_group, topic"),
                        "{{consumer_group}} {{topic}}",
                    ),
                    unit="cps",
                ),
                lines(
                    "Leased by group",
                    "Grows while handlers are slow; at pop.leases_max a queue gives no more.",
                    Query(
                        f"sum by (consumer_group, topic) ({of('gantry_group_open_messages')})",
                        "{{consumer_group}} {{topic}}",
                    ),
                ),
                lines(
                    "Acknowledgements",
                    "stale: the handle was not valid any more, so handlers take longer than their messages are leased.",
                    Query(rate("gantry_pop_acks_total", by="outcome"), "{{outcome}}"),
                    unit="cps",
                ),
            ),
        ),
        Row(
            "Leases that end",
            (
                lines(
                    "What became of their messages",
                    "retry: delivered again; dead letter: attempts are used up; renewed: the client lives.",
                    Query(rate("gantry_pop_ended_total", by="outcome"), "{{outcome}}"),
                    unit="cps",
                ),
                lines(
                    "Delivered again",
                    "Messages put into retry topics, by group: its handlers fail, die or are too slow.",
                    Query(
                        rate("rocketmq_pop_revive_retry_messages_total", by="consumer_group"), "{{consumer_group}}"
                    ),
                    unit="cps",
                ),
                lines(
                    "Records of leases",
                    "In: stored, CK for a lease, ACK for an acknowledgement. Out: handled when the lease had ended.",
                    Query(
                        rate("rocketmq_pop_revive_in_message_total", by="revive_message_type"),
                        "in {{revive_message_type}}",
                    ),
                    Query(
                        rate("rocketmq_pop_revive_out_message_total", by="revive_message_type"),
                        "out {{revive_message_type}}",
                    ),
                    unit="cps",
                ),
                lines(
                    "Not handled",
                    "Records of ended leases that wait. More than a moment: the disk is full, or the broker is busy.",
                    Query(f"sum by (instance) ({of('rocketmq_pop_revive_lag')})"),
                ),
            ),
        ),
    ),
    OF_BROKERS,
)
