"""The statements that delete what is finished and old; a part of `statements`, which says what each is for.

They delete only what no open delivery and no queue's greatest offset needs.
"""

from __future__ import annotations

FORGOTTEN_MAX = 10_000  # log rows that one `forget` deletes

# All columns of the index, backwards: by the offset alone MySQL reads and sorts the whole queue for each delivery.
BACKWARDS = """ORDER BY l.consumer_group DESC, l.topic DESC, l.broker DESC, l.queue_id DESC, l.queue_offset DESC
        LIMIT 1"""


def forgetting() -> dict[str, str | tuple[str, ...]]:
    """Return the texts by their names in Statements."""
    greatest = f"""(
              SELECT l.queue_offset FROM guarantee_log l
              WHERE l.consumer_group = o.consumer_group AND l.topic = o.topic
                AND l.broker = o.broker AND l.queue_id = o.queue_id
              {BACKWARDS})"""
    is_open = "SELECT 1 FROM guarantee_delivery d WHERE d.message_id = {id} AND d.state = 'open'"
    # The inner table is derived: MySQL neither reads a table that it deletes from nor takes LIMIT behind IN.
    return {
        "logged_group": "SELECT MIN(l.consumer_group) FROM guarantee_log l WHERE l.consumer_group > :after",
        "forget": f"""DELETE FROM guarantee_log
WHERE (consumer_group, message_id) IN (
    SELECT old.consumer_group, old.message_id FROM (
        SELECT o.consumer_group, o.message_id FROM guarantee_log o
        WHERE o.consumer_group = :consumer_group
          AND o.received_at_ms < :before_ms
          AND o.effect IN ('done', 'refused')
          AND NOT EXISTS ({is_open.format(id="o.message_id")} AND d.consumer_group = o.consumer_group)
          AND o.queue_offset < {greatest}
        ORDER BY o.received_at_ms
        LIMIT {FORGOTTEN_MAX}) AS old)""",
        "finished": "SELECT s.message_id FROM guarantee_stub s\n"
        f"WHERE s.created_at_ms < :before_ms AND NOT EXISTS ({is_open.format(id='s.message_id')})\n"
        "ORDER BY s.created_at_ms, s.message_id\nLIMIT :rows_max",
        "forget_stub": (
            "DELETE FROM guarantee_delivery\nWHERE message_id = :message_id AND state <> 'open'",
            "DELETE FROM guarantee_stub\nWHERE message_id = :message_id\n"
            "  AND NOT EXISTS (SELECT 1 FROM guarantee_delivery d WHERE d.message_id = :message_id)",
        ),
    }
