import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Orderly and broadcasting consumers, requests and their replies. */
final class Order {
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();

    private Order() {
    }

    static void run(String nameServer, Command c, Map<String, Object> answer) throws Exception {
        switch (c.text("op")) {
            case "orderly": orderly(nameServer, c); break;
            case "broadcast": broadcast(nameServer, c); break;
            case "respond": respond(nameServer, c); break;
            case "request": request(nameServer, c, answer); break;
            case "leave": CONSUMERS.remove(c.text("id")).shutdown(); break;
            default: throw new IllegalArgumentException("unknown op " + c.text("op"));
        }
    }

    /** What shuts down all that tests began here until now. */
    static List<Runnable> end() {
        List<Runnable> last = new ArrayList<>();
        CONSUMERS.values().forEach(one -> last.add(one::shutdown));
        CONSUMERS.clear();
        synchronized (PRODUCERS) {
            PRODUCERS.values().forEach(one -> last.add(one::shutdown));
            PRODUCERS.clear();
        }
        return last;
    }

    private static DefaultMQPushConsumer consumer(String nameServer, Command c) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(c.text("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(c.text("id"));
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(300);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(c.text("topic"), "*");
        return consumer;
    }

    private static void started(DefaultMQPushConsumer consumer, Command c) throws Exception {
        consumer.start();
        CONSUMERS.put(c.text("id"), consumer);
    }

    private static void say(String event, Command c, MessageExt message) {
        Map<String, Object> line = Rows.describe(message);
        line.put("event", event);
        line.put("consumer", c.text("id"));
        Driver.emit(line);
    }

    /** Emits "entered" before and "message" after each message; fails the first attempt of bodies that end as told. */
    private static void orderly(String nameServer, Command c) throws Exception {
        DefaultMQPushConsumer consumer = consumer(nameServer, c);
        consumer.setMaxReconsumeTimes((int) c.number("attempts", -1));
        Map<String, Integer> attempts = new ConcurrentHashMap<>();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                say("entered", c, message);
                try {
                    Thread.sleep(c.number("work_ms", 0));
                } catch (InterruptedException e) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                boolean isToFail = attempts.merge(body, 1, Integer::sum) == 1 || c.number("attempts", -1) >= 0;
                if (isToFail && !c.text("stumble").isEmpty() && body.endsWith(c.text("stumble"))) {
                    context.setSuspendCurrentQueueTimeMillis(100);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                say("message", c, message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        started(consumer, c);
    }

    private static void broadcast(String nameServer, Command c) throws Exception {
        DefaultMQPushConsumer consumer = consumer(nameServer, c);
        var model = consumer.getMessageModel().getDeclaringClass(); // its package is not the same in 4.9 and 5
        consumer.setMessageModel(Enum.valueOf(model, "BROADCASTING"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> say("message", c, message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        started(consumer, c);
    }

    private static DefaultMQProducer producer(String nameServer, String group) throws Exception {
        synchronized (PRODUCERS) {
            DefaultMQProducer known = PRODUCERS.get(group);
            if (known == null) {
                known = new DefaultMQProducer(group);
                known.setNamesrvAddr(nameServer);
                known.setClientIP("127.0.0.1");
                known.setInstanceName("asks-" + group);
                known.setHeartbeatBrokerInterval(1000);
                known.start();
                PRODUCERS.put(group, known);
            }
            return known;
        }
    }

    private static void respond(String nameServer, Command c) throws Exception {
        DefaultMQProducer producer = producer(nameServer, c.text("group") + "-replies");
        DefaultMQPushConsumer consumer = consumer(nameServer, c);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String body = new String(message.getBody(), StandardCharsets.UTF_8).toUpperCase();
                    Message reply = MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8));
                    producer.send(reply, 5000);
                } catch (Exception e) {
                    Driver.emit(Map.of("event", "error", "message", String.valueOf(e)));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        started(consumer, c);
    }

    private static void request(String nameServer, Command c, Map<String, Object> answer) throws Exception {
        Message message = new Message(c.text("topic"), c.text("body").getBytes(StandardCharsets.UTF_8));
        Message reply = producer(nameServer, c.text("group")).request(message, c.number("timeout_ms", 20_000));
        answer.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
        answer.put("tags", reply.getTags());
    }
}
