"""Terms of a group as its pods carry them: the weakest of all are those that a failover loop may rely on."""

from __future__ import annotations

from gantry_operator.api.terms import Terms, parse_terms, terms_of, weakest
from testkit.kube.clusters import cluster

DURABLE = terms_of(cluster().brokers)
FAST = terms_of(cluster(profile="fast", failover={"timers": "fast"}).brokers)


def test_a_pod_carries_its_terms_as_text() -> None:
    assert str(DURABLE) == "sync/2/5s/15s" and str(FAST) == "async/1/2s/6s"
    for each in (DURABLE, FAST, Terms(True, 3, 0.5, 3600)):
        assert parse_terms(str(each)) == each


def test_what_is_no_terms_is_none() -> None:
    for text in ("", "sync", "sync/2/5/15", "semi/2/5s/15s", "sync/2/5s/15s "):
        assert parse_terms(text) is None


def test_while_a_change_is_rolled_out_the_weaker_promise_and_the_longer_patience_hold() -> None:
    for wanted, found in ((DURABLE, FAST), (FAST, DURABLE)):
        assert weakest(wanted, [found, wanted]) == Terms(False, 1, 5.0, 15)
    assert weakest(DURABLE, [DURABLE, DURABLE]) == DURABLE == weakest(DURABLE, [])


def test_a_pod_of_which_nothing_is_known_may_acknowledge_alone() -> None:
    assert weakest(DURABLE, [DURABLE, None]) == Terms(False, 2, 5.0, 15)


def test_times_that_are_given_win_over_their_name_and_the_rest_fits_them() -> None:
    terms = terms_of(cluster(failover={"timers": "fast", "leaseDuration": "20s"}).brokers)
    assert (terms.suspect_after_s, terms.lease_s) == (2.0, 20) and terms.timers.renew_every_s == 1.0
    assert DURABLE.timers.renew_every_s == 2.5
