"""The settings that a client gets back on its telemetry stream: its own, completed.  Pure.

What each client needs of them is in facts 10.4 of the protocol.  RocketMQ's client for Node.js knows only the
exponential backoff, and takes its seconds for milliseconds; `leases` corrects the delays that come of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gantry.model import documents
from gantry.model.subscription import RETRY_TIMES_MAX, GroupConfig
from gantry.proxy import messaging_pb2 as pb
from gantry.proxy.caller import Caller

BODY_BYTES_MAX = 4 << 20  # RocketMQ's maxMessageSize
SEND_ATTEMPTS = 3
RECEIVE_COUNT_MAX = 32
LONG_POLLING_S = 20
# RocketMQ's delay levels: what a failed message waits for, by attempt.
LADDER_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
_RETRIES_MAX = (1 << 31) - 2  # what the protocol's 32 bits hold, with the first delivery
_DELAY_MS_MAX = 366 * 24 * 3600 * 1000  # of a group's policy, which may name any number
_SEND_FIRST_MS, _SEND_LAST_MS, _SEND_FACTOR = 10, 1000, 2.0
_EXPONENTIAL_FIRST_MS, _EXPONENTIAL_LAST_MS, _EXPONENTIAL_FACTOR = 5_000, 2 * 3600 * 1000, 2.0


def completed(sent: pb.Settings, caller: Caller, group: GroupConfig | None) -> pb.Settings:
    """Return the settings for a client; `group` is its consumer group's configuration, None where it is not known."""
    found = pb.Settings()
    found.CopyFrom(sent)
    found.metric.CopyFrom(pb.Metric(on=False))
    if found.WhichOneof("pub_sub") == "publishing":
        found.publishing.max_body_size = BODY_BYTES_MAX
        found.publishing.validate_message_type = True
        found.backoff_policy.Clear()
        found.backoff_policy.max_attempts = SEND_ATTEMPTS
        _set_exponential(found.backoff_policy, _SEND_FIRST_MS, _SEND_LAST_MS, _SEND_FACTOR)
    else:
        subscription = found.subscription
        subscription.fifo = group is not None and group.consume_orderly
        subscription.receive_batch_size = RECEIVE_COUNT_MAX
        subscription.long_polling_timeout.FromSeconds(LONG_POLLING_S)
        found.backoff_policy.CopyFrom(_redelivery(group, caller.is_node))
    return found


def redelivery_delay_s(group: GroupConfig | None, attempt: int) -> float:
    """Return how long a message waits that failed in its `attempt`-th delivery."""
    policy = _redelivery(group, False)
    if policy.WhichOneof("strategy") == "exponential_backoff":
        backoff = policy.exponential_backoff
        first_s, last_s = backoff.initial.ToMilliseconds() / 1000, backoff.max.ToMilliseconds() / 1000
        return min(last_s, first_s * backoff.multiplier ** min(60, max(0, attempt - 1)))
    delays = policy.customized_backoff.next
    return delays[min(len(delays), max(1, attempt)) - 1].ToMilliseconds() / 1000


def attempts_max(group: GroupConfig | None) -> int:
    """Return how often a message is delivered to a group before it is a dead letter."""
    return 1 + (RETRY_TIMES_MAX if group is None else min(_RETRIES_MAX, max(0, group.retry_times_max)))


def topics(sent: pb.Settings) -> list[str]:
    """Return the topics that a client publishes or subscribes to."""
    if sent.WhichOneof("pub_sub") == "publishing":
        return [topic.name for topic in sent.publishing.topics]
    return [entry.topic.name for entry in sent.subscription.subscriptions]


def _redelivery(group: GroupConfig | None, is_node: bool) -> pb.RetryPolicy:
    policy = pb.RetryPolicy(max_attempts=attempts_max(group))
    stored: Mapping[str, object] = {} if group is None else group.retry_policy
    if stored.get("type") == "EXPONENTIAL":
        _set_exponential(policy, *_exponential(stored))
    elif is_node:
        _set_exponential(policy, LADDER_S[0] * 1000, LADDER_S[-1] * 1000, _EXPONENTIAL_FACTOR)
    else:
        for delay_ms in _customized(stored):
            policy.customized_backoff.next.add().FromMilliseconds(delay_ms)
    return policy


def _set_exponential(policy: pb.RetryPolicy, first_ms: int, last_ms: int, factor: float) -> None:
    policy.exponential_backoff.initial.FromMilliseconds(first_ms)
    policy.exponential_backoff.max.FromMilliseconds(last_ms)
    policy.exponential_backoff.multiplier = factor


def _exponential(stored: Mapping[str, object]) -> tuple[int, int, float]:
    """Return RocketMQ's `exponentialRetryPolicy` of a group: first and last delay in ms, and the factor."""
    source = stored.get("exponentialRetryPolicy")
    if not isinstance(source, dict):
        return _EXPONENTIAL_FIRST_MS, _EXPONENTIAL_LAST_MS, _EXPONENTIAL_FACTOR
    factor = source.get("multiplier")
    try:
        first = documents.integer(source, "initial", _EXPONENTIAL_FIRST_MS)
        last = documents.integer(source, "max", _EXPONENTIAL_LAST_MS)
    except ValueError:
        return _EXPONENTIAL_FIRST_MS, _EXPONENTIAL_LAST_MS, _EXPONENTIAL_FACTOR
    is_number = isinstance(factor, (int, float)) and 1 <= factor <= 100
    first, last = min(_DELAY_MS_MAX, max(1, first)), min(_DELAY_MS_MAX, max(1, last))
    return first, last, float(factor) if is_number else _EXPONENTIAL_FACTOR  # type: ignore[arg-type]


def _customized(stored: Mapping[str, object]) -> Sequence[int]:
    """Return the delays of RocketMQ's `customizedRetryPolicy` of a group in ms, RocketMQ's ladder without one."""
    source = stored.get("customizedRetryPolicy")
    given: Iterable[object] = source.get("next") or () if isinstance(source, dict) else ()
    if not isinstance(given, list):
        given = ()
    found = [min(_DELAY_MS_MAX, one) for one in given if isinstance(one, int) and one > 0]
    return found or [delay_s * 1000 for delay_s in LADDER_S]
