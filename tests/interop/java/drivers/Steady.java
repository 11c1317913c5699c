import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer and a push consumer as they come: nothing is set but the name server. The producer sends one message after
 * the other for ever. Whatever did not happen for half a second is a line with "event": "gap".
 */
final class Steady {
    private static final long GAP_MS = 500;
    private final String what;
    private long last = System.currentTimeMillis();

    private Steady(String what) {
        this.what = what;
    }

    static void begin(String nameServer, Command c) throws Exception {
        String topic = c.text("topic");
        Steady received = new Steady("receive"), sent = new Steady("send");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(c.text("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.happened();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(c.text("group") + "-producer");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        Thread sender = new Thread(() -> send(producer, topic, sent));
        sender.setDaemon(true);
        sender.start();
    }

    private static void send(DefaultMQProducer producer, String topic, Steady sent) {
        while (true) {
            try {
                byte[] body = String.valueOf(System.currentTimeMillis()).getBytes(StandardCharsets.UTF_8);
                if (producer.send(new Message(topic, body)).getSendStatus() == SendStatus.SEND_OK) {
                    sent.happened();
                }
                Thread.sleep(10);
            } catch (Exception failure) {
                try {
                    Thread.sleep(50); // a user who tries again
                } catch (InterruptedException stopped) {
                    return;
                }
            }
        }
    }

    private synchronized void happened() {
        long now = System.currentTimeMillis();
        if (now - last > GAP_MS) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("event", "gap");
            line.put("what", what);
            line.put("begin_ms", last);
            line.put("end_ms", now);
            Driver.emit(line);
        }
        last = now;
    }
}
