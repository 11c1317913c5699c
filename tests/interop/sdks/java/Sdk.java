import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;

/**
 * RocketMQ 5's client for Java under remote control: one JSON command a line on stdin, one JSON answer a line on stdout.
 *
 * <p>The same commands as in the drivers for Python and Node.js. Every delivery is an event with the number of times that
 * this process has seen the message, and a listener fails as often as it is told to.
 */
public final class Sdk {
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, StandardCharsets.UTF_8);
    private static final Gson GSON = new Gson();
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration PATIENCE = Duration.ofSeconds(10);
    private final ClientConfiguration configuration;
    private final Map<String, Producer> producers = new LinkedHashMap<>();
    private final Map<String, AutoCloseable> consumers = new ConcurrentHashMap<>();
    private final Map<String, MessageView> received = new ConcurrentHashMap<>();
    private final AtomicInteger loading = new AtomicInteger();

    private Sdk(String endpoints, String tls) {
        var builder = ClientConfiguration.newBuilder().setEndpoints(endpoints).setRequestTimeout(PATIENCE);
        configuration = ("tls".equals(tls) ? builder : builder.enableSsl(false)).build();
    }

    public static void main(String[] args) throws Exception {
        Sdk driver = new Sdk(args[0], args[1]);
        ExecutorService pool = Executors.newFixedThreadPool(8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(System.err);
        emit(new LinkedHashMap<>(Map.of("event", "ready")));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject command = GSON.fromJson(line, JsonObject.class);
            if ("quit".equals(text(command, "op", ""))) {
                break;
            }
            pool.submit(() -> driver.answer(command));
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void emit(Map<String, Object> line) {
        OUT.println(GSON.toJson(line));
    }

    private static String text(JsonObject command, String name, String otherwise) {
        return command.has(name) ? command.get(name).getAsString() : otherwise;
    }

    private static double number(JsonObject command, String name, double otherwise) {
        return command.has(name) ? command.get(name).getAsDouble() : otherwise;
    }

    private void answer(JsonObject command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("reply", command.get("reply").getAsInt());
        try {
            run(command, answer);
            answer.put("ok", true);
        } catch (Throwable error) {
            answer.put("ok", false);
            answer.put("error", error.getClass().getSimpleName());
            answer.put("message", said(error));
        }
        emit(answer);
    }

    /** What an error and its causes say: this client hides a refused start behind an error of the library below it. */
    private static String said(Throwable error) {
        String more = error.getCause() == null || error.getCause() == error ? "" : "; " + said(error.getCause());
        return error.getMessage() + more;
    }

    private void run(JsonObject c, Map<String, Object> answer) throws Exception {
        String id = text(c, "id", "");
        switch (text(c, "op", "")) {
            case "open": producer(text(c, "topic", "")); break;
            case "send": send(c, answer); break;
            case "recall":
                answer.put("recalled", producer(text(c, "topic", "")).recallMessage(text(c, "topic", ""), text(c, "handle", "")).getMessageId().toString());
                break;
            case "load": load(c); break;
            case "unload": loading.incrementAndGet(); break;
            case "subscribe": subscribe(c); break;
            case "simple": simple(c); break;
            case "receive": receive(c, answer); break;
            case "ack": ((SimpleConsumer) consumers.get(id)).ack(received.get(text(c, "message", ""))); break;
            case "change":
                ((SimpleConsumer) consumers.get(id)).changeInvisibleDuration(received.get(text(c, "message", "")), seconds(c, "invisible_s", 30));
                break;
            case "close": consumers.remove(id).close(); break;
            case "end": end(); break;
            default: throw new IllegalArgumentException("no such operation: " + c);
        }
    }

    private static Duration seconds(JsonObject c, String name, double otherwise) {
        return Duration.ofMillis((long) (1000 * number(c, name, otherwise)));
    }

    private synchronized Producer producer(String topic) throws Exception {
        Producer known = producers.get(topic);
        if (known == null) {
            known = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).setTransactionChecker(Sdk::check).build();
            producers.put(topic, known);
        }
        return known;
    }

    private static TransactionResolution check(MessageView message) {
        emit(described("checked", message));
        return TransactionResolution.valueOf(message.getProperties().get("answer").toUpperCase());
    }

    private static Map<String, Object> described(String event, MessageView message) {
        Map<String, Object> row = new LinkedHashMap<>();
        if (!event.isEmpty()) {
            row.put("event", event);
        }
        row.put("topic", message.getTopic());
        row.put("messageId", message.getMessageId().toString());
        row.put("keys", new ArrayList<>(message.getKeys()));
        row.put("tag", message.getTag().orElse(null));
        row.put("group", message.getMessageGroup().orElse(""));
        row.put("attempt", message.getDeliveryAttempt());
        row.put("body", StandardCharsets.UTF_8.decode(message.getBody()).toString());
        row.put("colour", message.getProperties().get("colour"));
        row.put("isCorrupted", false); // this client does not give such messages away
        return row;
    }

    private static Message message(JsonObject c, String prefix, int number) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(text(c, "topic", "")).setTag(text(c, "tag", "TagA"));
        builder.setBody((prefix + "-" + number + text(c, "padding", "")).getBytes(StandardCharsets.UTF_8));
        builder.setKeys(prefix + "-key-" + number).addProperty("colour", "blue").addProperty("number", String.valueOf(number));
        if (c.has("execute")) {
            builder.addProperty("answer", text(c, "answer", "unknown"));
        }
        if (c.has("group")) {
            builder.setMessageGroup(text(c, "group", ""));
        }
        if (c.has("deliver_in_ms")) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + (long) number(c, "deliver_in_ms", 0));
        }
        return builder.build();
    }

    private void send(JsonObject c, Map<String, Object> answer) throws Exception {
        Producer producer = producer(text(c, "topic", ""));
        List<Object> results = new ArrayList<>();
        for (int i = 0; i < number(c, "count", 1); i++) {
            Message message = message(c, text(c, "prefix", ""), i);
            results.add(row(c.has("execute") ? transact(producer, c, message) : producer.send(message)));
        }
        answer.put("results", results);
    }

    private static SendReceipt transact(Producer producer, JsonObject c, Message message) throws Exception {
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message, transaction);
        emit(new LinkedHashMap<>(Map.of("event", "executed", "messageId", receipt.getMessageId().toString())));
        switch (text(c, "execute", "")) {
            case "halt": Runtime.getRuntime().halt(1); break;
            case "commit": transaction.commit(); break;
            case "rollback": transaction.rollback(); break;
            default: break;
        }
        return receipt;
    }

    private static Map<String, Object> row(SendReceipt receipt) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("messageId", receipt.getMessageId().toString());
        row.put("recallHandle", receipt.getRecallHandle());
        return row;
    }

    /** Sends one message after the other until told to stop; each that is acknowledged is an event. */
    private void load(JsonObject c) throws Exception {
        Producer producer = producer(text(c, "topic", ""));
        int run = loading.incrementAndGet();
        Thread sending = new Thread(() -> {
            int number = 0;
            for (; run == loading.get(); number++) {
                String prefix = text(c, "prefix", "") + number;
                try {
                    producer.send(message(c, prefix, 0));
                    emit(new LinkedHashMap<>(Map.of("event", "acked", "body", prefix + "-0")));
                } catch (Exception error) {
                    emit(new LinkedHashMap<>(Map.of("event", "unacked", "message", String.valueOf(error.getMessage()))));
                    sleep(Duration.ofMillis(100));
                }
                sleep(Duration.ofMillis((long) number(c, "pause_ms", 10)));
            }
            emit(new LinkedHashMap<>(Map.of("event", "unloaded", "sent", number)));
        }, "load");
        sending.setDaemon(true);
        sending.start();
    }

    private static void sleep(Duration time) {
        try {
            Thread.sleep(time.toMillis());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static Map<String, FilterExpression> wanted(JsonObject c) {
        FilterExpressionType type = c.has("sql") ? FilterExpressionType.SQL92 : FilterExpressionType.TAG;
        FilterExpression expression = new FilterExpression(text(c, c.has("sql") ? "sql" : "expression", "*"), type);
        Map<String, FilterExpression> wanted = new LinkedHashMap<>(Map.of(text(c, "topic", ""), expression));
        if (c.has("more_topics")) {
            c.getAsJsonArray("more_topics").forEach(topic -> wanted.put(topic.getAsString(), expression));
        }
        return wanted;
    }

    private void subscribe(JsonObject c) throws Exception {
        Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();
        String id = text(c, "id", "");
        PushConsumer made = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(text(c, "consumer_group", ""))
            .setSubscriptionExpressions(wanted(c)).setMessageListener(message -> {
                int times = seen.computeIfAbsent(message.getMessageId().toString(), key -> new AtomicInteger()).incrementAndGet();
                Map<String, Object> event = described("message", message);
                event.put("consumer", id);
                event.put("times", times);
                emit(event);
                sleep(seconds(c, "slow_s", 0));
                boolean fails = c.has("fail") || times <= number(c, "fail_times", 0);
                emit(new LinkedHashMap<>(Map.of("event", fails ? "failed" : "done", "consumer", id, "body", event.get("body"))));
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        consumers.put(id, made);
    }

    private void simple(JsonObject c) throws Exception {
        SimpleConsumer made = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(text(c, "consumer_group", ""))
            .setSubscriptionExpressions(wanted(c)).setAwaitDuration(seconds(c, "await_s", 5)).build();
        consumers.put(text(c, "id", ""), made);
    }

    private void receive(JsonObject c, Map<String, Object> answer) throws Exception {
        List<Object> messages = new ArrayList<>();
        for (MessageView one : ((SimpleConsumer) consumers.get(text(c, "id", ""))).receive((int) number(c, "count", 16), seconds(c, "invisible_s", 30))) {
            received.put(one.getMessageId().toString(), one);
            messages.add(described("", one));
        }
        answer.put("messages", messages);
    }

    /** Shuts down what an ended test began, by itself: whoever reads the answers does not wait for it. */
    private synchronized void end() {
        loading.incrementAndGet();
        List<AutoCloseable> last = new ArrayList<>(producers.values());
        last.addAll(consumers.values());
        producers.clear();
        consumers.clear();
        received.clear();
        Thread ending = new Thread(() -> last.forEach(one -> {
            try {
                one.close();
            } catch (Exception error) {
                System.err.println("close: " + error);
            }
        }), "ending");
        ending.setDaemon(true);
        ending.start();
    }
}
