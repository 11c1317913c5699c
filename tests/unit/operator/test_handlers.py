"""What is news to the worklist, and how kopf is set."""

from __future__ import annotations

import itertools

import kopf

from gantry_operator.api.brokercluster import Key
from gantry_operator.handlers import EventFilter, Patience, configure
from testkit.kube.clusters import document

KEY = Key("messaging", "orders")


def test_a_status_alone_is_no_news() -> None:
    wishes, cluster = EventFilter(), document()
    assert wishes.is_news(KEY, cluster, False)
    cluster["status"] = {"conditions": []}
    cluster["metadata"] |= {"resourceVersion": "7", "managedFields": [{}]}
    assert not wishes.is_news(KEY, cluster, False)


def test_another_generation_annotation_or_deletion_is_news() -> None:
    wishes, cluster = EventFilter(), document()
    wishes.is_news(KEY, cluster, False)
    for change in ({"generation": 2}, {"annotations": {"gantrymq.io/pause": "true"}}, {"deletionTimestamp": "now"}):
        cluster["metadata"] |= change
        assert wishes.is_news(KEY, cluster, False)
    assert wishes.is_news(KEY, cluster, True)
    assert wishes.is_news(KEY, cluster, False)


def test_a_request_is_tried_without_an_end_and_again_from_the_start() -> None:
    patience = Patience()
    assert list(itertools.islice(patience, 100)) == list(itertools.islice(patience, 100))
    assert max(itertools.islice(patience, 100)) <= 8


def test_kopf_watches_and_does_nothing_else() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    assert settings.peering.standalone and settings.scanning.disabled and not settings.posting.enabled
    assert isinstance(settings.watching.server_timeout, int), "the API server refuses a fraction"
    assert settings.watching.label_selectors["pods"] == "gantrymq.io/cluster"
