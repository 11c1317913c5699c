"""What a transactional producer writes."""

from __future__ import annotations

from gantry.client.requests.transaction_requests import Half, Outcome, end


def test_an_end_says_everything_that_brokers_of_any_version_read() -> None:
    question = end("payers", Half("Orders", "K1", "broker-a", 41, 900), Outcome.COMMIT, from_check=True)
    assert question.command.ext == {
        "topic": "Orders",
        "producerGroup": "payers",
        "tranStateTableOffset": "41",
        "commitLogOffset": "900",
        "commitOrRollback": "8",
        "fromTransactionCheck": "true",
        "msgId": "K1",
        "transactionId": "K1",
        "bname": "broker-a",
    }
