"""The dashboard and the alerts of the guarantee: what `gantry guarantee resend` says of its database, and what it does.

Every resend process says the same of the database, so panels take the maximum over processes; counters are summed.
"""

from __future__ import annotations

from gantry_operator.monitoring.alerts import Alert
from gantry_operator.monitoring.panels import Dashboard, Panel, PanelType, Query, Row, Variable

_VARIABLES = (Variable("group", "label_values(gantry_guarantee_open, consumer_group)", "Group"),)
_GROUP = 'consumer_group=~"$group"'


def _most(metric: str, *by: str) -> str:
    labels = ", ".join(("consumer_group", *by))
    return f"max by ({labels}) ({metric}{{{_GROUP}}})"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


BOARD = Dashboard(
    "gantrymq-guarantee",
    "GantryMQ: business guarantee",
    (
        Row(
            "Now",
            (
                Panel(
                    "Oldest unconfirmed",
                    "Age of the oldest message whose effect nobody has confirmed; gantry guarantee list open names it.",
                    (Query(f"max({_most('gantry_guarantee_oldest_seconds')})", "oldest"),),
                    "s",
                    PanelType.STAT,
                    3600,
                ),
                Panel(
                    "Unconfirmed",
                    "Messages, counted once for each group that has to handle them.",
                    (Query(f"sum({_most('gantry_guarantee_open')})", "unconfirmed"),),
                    kind=PanelType.STAT,
                ),
                Panel(
                    "Given up",
                    "Sent as often as allowed, or arrived without an effect: rearm, confirm or close each by hand.",
                    (
                        Query(
                            'sum(max by (consumer_group, reason) (gantry_guarantee_cases{reason!="overdue"})) '
                            "or vector(0)",
                            "given up",
                        ),
                    ),
                    kind=PanelType.STAT,
                    bad_from=1,
                ),
                Panel(
                    "Not told",
                    "Messages that wait for a mail server or a webhook; the log has its answer.",
                    (Query("max(gantry_guarantee_untold)", "not told"),),
                    kind=PanelType.STAT,
                    bad_from=1,
                ),
                Panel(
                    "Last pass",
                    "Time since a resend process ended a pass; without one lost messages are not sent again.",
                    (Query("time() - max(gantry_guarantee_last_pass_timestamp_seconds)", "ago"),),
                    "s",
                    PanelType.STAT,
                    600,
                ),
            ),
        ),
        Row(
            "Groups",
            (
                Panel(
                    "Oldest unconfirmed",
                    "Grows while a group does not run, or while its effects fail.",
                    (Query(_most("gantry_guarantee_oldest_seconds"), "{{consumer_group}}"),),
                    "s",
                ),
                Panel(
                    "Backlog",
                    "Open: not confirmed. Due: its time to be confirmed is over.",
                    (
                        Query(_most("gantry_guarantee_open"), "open {{consumer_group}}"),
                        Query(_most("gantry_guarantee_due"), "due {{consumer_group}}"),
                    ),
                ),
                Panel(
                    "For a person",
                    "By reason; gantry guarantee list REASON names them.",
                    (Query(_most("gantry_guarantee_cases", "reason"), "{{reason}} {{consumer_group}}"),),
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel(
                    "Sent again",
                    "By result; postponed: no broker takes messages at the moment, which costs no attempt.",
                    (Query(_rate("gantry_guarantee_resends_total", "result"), "{{result}}"),),
                    "cps",
                ),
                Panel(
                    "Passes",
                    "Failed ones have their reason in the log and in /readyz.",
                    (Query(_rate("gantry_guarantee_passes_total", "kind, result"), "{{kind}} {{result}}"),),
                    "cps",
                ),
                Panel(
                    "People",
                    "Messages that were told, and digests that a channel did not take.",
                    (
                        Query("sum(rate(gantry_guarantee_told_total[$__rate_interval]))", "told"),
                        Query(_rate("gantry_guarantee_channel_failures_total", "channel"), "{{channel}} failed"),
                    ),
                    "cps",
                ),
            ),
        ),
    ),
    _VARIABLES,
)

ALERTS = (
    Alert(
        "GantryGuaranteeUnconfirmed",
        "max by (consumer_group) (gantry_guarantee_oldest_seconds) > 3600",
        "5m",
        "warning",
        "Group {{ $labels.consumer_group }} has not confirmed a message for {{ $value | humanizeDuration }}",
        "gantry guarantee status and list overdue show whether the group is behind or does not run at all; list stuck "
        "shows what arrived and had no effect.",
    ),
    Alert(
        "GantryGuaranteeGivenUp",
        'max by (consumer_group, reason) (gantry_guarantee_cases{reason!="overdue"}) > 0',
        "5m",
        "critical",
        "{{ $value }} messages for group {{ $labels.consumer_group }} are {{ $labels.reason }}: a person has to decide",
        "gantry guarantee list {{ $labels.reason }} names them; show one, then rearm (send it again), confirm (its "
        "effect is there) or close (give up).",
    ),
    Alert(
        "GantryGuaranteeStandsStill",
        "time() - max(gantry_guarantee_last_pass_timestamp_seconds) > 600",
        "5m",
        "critical",
        "No resend process has ended a pass for {{ $value | humanizeDuration }}: lost messages are not sent again",
        "Is one running? Its /readyz and its log say what fails: the database, the name servers, the tables' version.",
    ),
    Alert(
        "GantryGuaranteeNobodyTold",
        "sum by (channel) (increase(gantry_guarantee_channel_failures_total[15m])) > 0 "
        "and on () max(gantry_guarantee_untold) > 0",
        "15m",
        "warning",
        "The channel {{ $labels.channel }} does not take what people have to know",
        "The log of the resend process has the mail server's or the webhook's answer.",
    ),
)
GROUP = ("gantrymq-guarantee", ALERTS)
