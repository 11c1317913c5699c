import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** What an answer says of a send and of a message. */
final class Rows {
    private Rows() {
    }

    static Map<String, Object> describe(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("msgId", result.getMsgId());
        row.put("offsetMsgId", result.getOffsetMsgId());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("queueOffset", result.getQueueOffset());
        row.put("recallHandle", Delays.handle(result));
        return row;
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("msgId", message.getMsgId());
        row.put("offsetMsgId", message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("keys", message.getKeys());
        row.put("tags", message.getTags());
        row.put("colour", message.getUserProperty("colour"));
        row.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        row.put("times", message.getReconsumeTimes());
        row.put("stored", message.getStoreTimestamp());
        row.put("transactionId", message.getTransactionId());
        return row;
    }
}
