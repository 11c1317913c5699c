"""`foreachBatch` with a transactional sink: a batch is in RocketMQ once, however often Spark runs it.

    def each(df, batch_id):
        gantrymq_transaction(df.select("topic", "body"), batch_id, namesrv="mq:9876", sink_id="orders-out")

    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", path).start()

The sink's name stands for the query and its checkpoint: use it for nothing else, and one name for each call in `each`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def gantrymq_transaction(
    df: DataFrame, batch_id: int, *, namesrv: str, sink_id: str, topic: str = "", **options: str
) -> None:
    """Write one batch of a sink unless it was written before; when this returns, its messages are delivered."""
    given = {"gantrymq.namesrv": namesrv, "mode": "transactional", "sinkId": sink_id, "batchId": str(batch_id)}
    given |= options
    if topic:
        given["topic"] = topic
    df.write.format("gantrymq").mode("append").options(**given).save()
