import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactional producers that do what their messages say: the property "execute" is the local transaction's outcome
 * (commit, rollback, unknown, or halt: the process ends between half and end), "answer" the checker's. Whichever
 * instance of a group is asked, it answers the same. Every call of either is a line with "event".
 */
final class Transactions implements TransactionListener {
    /** What every checker of this process says instead; empty: what the message says. */
    static volatile String everything = "";

    private Transactions() {
    }

    static TransactionMQProducer producer(String group) {
        TransactionMQProducer made = new TransactionMQProducer(group);
        made.setTransactionListener(new Transactions());
        return made;
    }

    static SendResult send(DefaultMQProducer producer, Message message, Command c) throws Exception {
        message.putUserProperty("execute", c.text("execute").isEmpty() ? "commit" : c.text("execute"));
        message.putUserProperty("answer", c.text("answer").isEmpty() ? "commit" : c.text("answer"));
        if (c.number("immunity", 0) > 0) {
            String seconds = String.valueOf(c.number("immunity", 0));
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, seconds);
        }
        return ((TransactionMQProducer) producer).sendMessageInTransaction(message, null);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
        tell("executed", message, message.getTransactionId());
        if ("halt".equals(message.getUserProperty("execute"))) {
            Runtime.getRuntime().halt(1);
        }
        return state(message.getUserProperty("execute"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        tell("checked", message, message.getTransactionId());
        return state(everything.isEmpty() ? message.getUserProperty("answer") : everything);
    }

    private static void tell(String event, Message message, String transactionId) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("topic", message.getTopic());
        line.put("keys", message.getKeys());
        line.put("transactionId", transactionId);
        Driver.emit(line);
    }

    private static LocalTransactionState state(String word) {
        switch (word) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }
}
