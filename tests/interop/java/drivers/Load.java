import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer that sends one message after the other until it is told to stop, whatever happens to the brokers. Each
 * SEND_OK that the client reported is a line "acked" with the body and where the message stands.
 */
final class Load {
    private static volatile boolean stopping;
    private static final int TIMEOUT_MS = 3_000;

    private Load() {
    }

    static void stop() {
        stopping = true;
    }

    static void run(DefaultMQProducer producer, Command c, Map<String, Object> answer) throws Exception {
        stopping = false;
        long failed = 0;
        long number = 0;
        for (; !stopping; number++) {
            String body = c.text("prefix") + "-" + number;
            try {
                SendResult result = producer.send(new Message(c.text("topic"), body.getBytes("UTF-8")), TIMEOUT_MS);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    Map<String, Object> line = new LinkedHashMap<>(Rows.describe(result));
                    line.put("event", "acked");
                    line.put("body", body);
                    Driver.emit(line);
                } else {
                    failed++;
                }
            } catch (Exception e) {
                failed++;
                Thread.sleep(100);
            }
            Thread.sleep(c.number("pause", 10));
        }
        answer.put("sent", number);
        answer.put("failed", failed);
    }
}
