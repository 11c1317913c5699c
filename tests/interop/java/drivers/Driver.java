import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Apache's Java client under remote control: one JSON command a line on stdin, one JSON answer a line on stdout.
 *
 * <p>A command is {"op": ..., "reply": N, ...}; its answer carries the same N, "ok", and either results or "error",
 * "message" and the broker's "code". Messages that a push consumer receives are lines with "event". Commands run on a
 * pool, so a pull that waits does not stop a send. One JVM serves every scenario of a test run, because starting one
 * costs more than most scenarios. The same source is compiled against 4.9.7 and 5.x: it imports only what both have
 * under the same name.
 */
public final class Driver {
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true);
    private static final int PATIENCE_MS = 30_000;
    private int pollMs = 1_000;
    private int heartbeatMs = 1_000;
    private int apiTimeoutMs = PATIENCE_MS;
    private final String nameServer;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final Map<String, DefaultMQPullConsumer> pullers = new HashMap<>();
    private DefaultMQAdminExt admin;

    private Driver(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.logUseSlf4j", "false");
        Driver driver = new Driver(args[0]);
        ExecutorService pool = Executors.newFixedThreadPool(4);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(System.err);
        emit(Map.of("event", "ready"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<?, ?> command = RemotingSerializable.fromJson(line, HashMap.class);
            pool.submit(() -> driver.answer(new Command(command)));
        }
        System.exit(0);
    }

    static synchronized void emit(Map<String, Object> line) {
        OUT.println(RemotingSerializable.toJson(line, false));
    }

    private void answer(Command command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("reply", command.number("reply", 0));
        try {
            run(command, answer);
            answer.put("ok", true);
        } catch (Throwable e) {
            answer.put("ok", false);
            answer.put("error", e.getClass().getSimpleName());
            answer.put("message", String.valueOf(e.getMessage()));
            Throwable cause = e instanceof MQClientException && e.getCause() instanceof MQBrokerException ? e.getCause() : e;
            if (cause instanceof MQBrokerException) {
                answer.put("code", ((MQBrokerException) cause).getResponseCode());
            } else if (cause instanceof MQClientException) {
                answer.put("code", ((MQClientException) cause).getResponseCode());
            }
        }
        emit(answer);
    }

    private void run(Command c, Map<String, Object> answer) throws Exception {
        switch (c.text("op")) {
            case "send": send(c, answer); break;
            case "subscribe": subscribe(c); break;
            case "report": consumers.get(c.text("id")).getDefaultMQPushConsumerImpl().persistConsumerOffset(); break;
            case "close": close(c.text("id")); break;
            case "open": Transactions.everything = c.text("everything"); producer(c.text("group")); break;
            case "recall": answer.put("recalled", Delays.recall(producer(c.text("group")), c.text("topic"), c.text("handle"))); break;
            case "pull": pull(c, answer); break;
            case "hold": hold(c, answer); break;
            case "lite": lite(c, answer); break;
            case "commit": commit(c); break;
            case "committed": committed(c, answer); break;
            case "offsets": offsets(c, answer); break;
            case "view": answer.put("found", Rows.describe(admin().viewMessage(c.text("topic"), c.text("id")))); break;
            case "query": query(c, answer); break;
            case "judge": Filters.judge(c, answer); break;
            case "bloom": Filters.bloom(c, answer); break;
            case "survey": case "stats": case "topic_stats": case "connections": case "running": case "reset": case "query_between": case "traced":
                Queries.run(admin(), nameServer, c, answer); break;
            case "create": create(c); break;
            case "cluster": cluster(answer); break; case "steady": Steady.begin(nameServer, c); break;
            case "fill": new Bulk(producer(c.text("group")), c).fill(answer); break;
            case "check": new BulkCheck(admin(), puller(c.text("group")), c).check(answer); break;
            case "intervals": intervals(c); break;
            case "load": Load.run(producer(c.text("group")), c, answer); break;
            case "unload": Load.stop(); break;
            case "pop": case "pop_mode": pop(c, answer); break;
            case "end": end(); break;
            case "quit": System.exit(0); break;
            default: Order.run(nameServer, c, answer);
        }
    }

    /** What all clients here have in common; patient, because a busy machine is not what these scenarios are about. */
    private void configure(ClientConfig client) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP("127.0.0.1");
        client.setPollNameServerInterval(pollMs);
        client.setHeartbeatBrokerInterval(heartbeatMs);
        client.setMqClientApiTimeout(apiTimeoutMs);
    }

    /** How often clients that are made from now on look for routes and send heartbeats, and how long they wait. */
    private void intervals(Command c) {
        pollMs = (int) c.number("poll", pollMs);
        heartbeatMs = (int) c.number("heartbeat", heartbeatMs);
        apiTimeoutMs = (int) c.number("timeout", apiTimeoutMs);
    }

    private synchronized DefaultMQProducer producer(String group) throws MQClientException {
        DefaultMQProducer known = producers.get(group);
        if (known != null) {
            return known;
        }
        DefaultMQProducer made = group.startsWith("tx") ? Transactions.producer(group) : new DefaultMQProducer(group);
        configure(made);
        made.setSendMsgTimeout(PATIENCE_MS);
        made.start();
        producers.put(group, made);
        return made;
    }

    private void send(Command c, Map<String, Object> answer) throws Exception {
        DefaultMQProducer producer = producer(c.text("group"));
        List<Object> results = new ArrayList<>();
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < c.number("count", 1); i++) {
            messages.add(message(c, i));
        }
        switch (c.text("kind")) {
            case "batch": results.add(Rows.describe(producer.send(messages))); break;
            case "async": sendAsync(producer, messages, results); break;
            default:
                for (Message message : messages) {
                    SendResult result = sendOne(producer, c, message);
                    if (result != null) {
                        results.add(Rows.describe(result));
                    }
                }
        }
        answer.put("results", results);
    }

    private static Message message(Command c, int i) throws Exception {
        String body = c.text("prefix") + "-" + i + c.text("padding");
        Message message = new Message(c.text("topic"), c.text("tag"), c.text("prefix") + "-key-" + i, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("colour", "blue");
        message.putUserProperty("number", String.valueOf(i));
        Delays.ask(message, c);
        return message;
    }

    private static SendResult sendOne(DefaultMQProducer producer, Command c, Message message) throws Exception {
        switch (c.text("kind")) {
            case "oneway":
                producer.sendOneway(message);
                return null;
            case "selector":
                return producer.send(message, (queues, m, arg) -> queues.get((Integer) arg % queues.size()), (int) c.number("queue", 0));
            case "transaction":
                return Transactions.send(producer, message, c);
            default:
                return producer.send(message);
        }
    }

    private static void sendAsync(DefaultMQProducer producer, List<Message> messages, List<Object> results) throws Exception {
        CountDownLatch left = new CountDownLatch(messages.size());
        List<Throwable> failures = new ArrayList<>();
        for (Message message : messages) {
            producer.send(message, callback((result, error) -> {
                synchronized (results) {
                    if (error != null) {
                        failures.add(error);
                    } else {
                        results.add(Rows.describe(result));
                    }
                }
                left.countDown();
            }));
        }
        if (!left.await(50, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " asynchronous sends without an answer");
        }
        if (!failures.isEmpty()) {
            throw new IllegalStateException("asynchronous send failed: " + failures.get(0), failures.get(0));
        }
    }

    static SendCallback callback(BiConsumer<SendResult, Throwable> done) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                done.accept(result, null);
            }

            @Override
            public void onException(Throwable e) {
                done.accept(null, e);
            }
        };
    }

    private void subscribe(Command c) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(c.text("group"));
        configure(consumer);
        consumer.setInstanceName(c.text("id"));
        consumer.setPersistConsumerOffsetInterval(500);
        // A shutdown reports the offsets; by default it does not wait for the listener, whose last message it then leaves out.
        consumer.setAwaitTerminationMillisWhenShutdown(60_000);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setMaxReconsumeTimes((int) c.number("max_times", -1));
        boolean first = !"last".equals(c.text("from"));
        consumer.setConsumeFromWhere(first ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(c.text("topic"), Filters.selector(c));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                Map<String, Object> event = Rows.describe(message);
                event.put("event", "message");
                event.put("consumer", c.text("id"));
                emit(event);
            }
            context.setDelayLevelWhenNextConsume((int) c.number("level", 0));
            boolean fails = !c.text("fail").isEmpty() || messages.get(0).getReconsumeTimes() < c.number("fail_times", 0);
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        synchronized (this) {
            consumers.put(c.text("id"), consumer);
        }
    }

    /** What only 5.x has, so it is compiled only there and found by name. */
    interface Extra {
        void run(DefaultMQAdminExt admin, DefaultMQPushConsumer consumer, Command c, Map<String, Object> answer) throws Exception;
    }

    private void pop(Command c, Map<String, Object> answer) throws Exception {
        Extra extra = (Extra) Class.forName("Pop").getDeclaredConstructor().newInstance();
        if (c.text("op").equals("pop_mode")) {
            extra.run(admin(), null, c, answer);
            return;
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(c.text("group"));
        configure(consumer);
        // Ids come again in each test, and a client of the same name may still be ending: it would be shared, and is closed.
        consumer.setInstanceName(c.text("id") + "-" + c.text("group"));
        extra.run(null, consumer, c, answer);
        synchronized (this) {
            consumers.put(c.text("id"), consumer);
        }
    }

    /**
     * Shuts down what ended tests began, by itself: each client of 5.x has two threads that wake a hundred times a second,
     * and after a hundred tests they take half a core. Whoever reads the answers does not wait for it.
     */
    private synchronized void end() {
        List<Runnable> last = new ArrayList<>();
        producers.values().forEach(one -> last.add(one::shutdown));
        consumers.values().forEach(one -> last.add(one::shutdown));
        pullers.values().forEach(one -> last.add(one::shutdown));
        producers.clear();
        consumers.clear();
        pullers.clear();
        last.addAll(Order.end());
        Thread ending = new Thread(() -> last.forEach(Runnable::run), "ending");
        ending.setDaemon(true);
        ending.start();
    }

    private synchronized void close(String id) {
        consumers.remove(id).shutdown();
    }

    private synchronized DefaultMQPullConsumer puller(String group) throws MQClientException {
        DefaultMQPullConsumer known = pullers.get(group);
        if (known != null) {
            return known;
        }
        DefaultMQPullConsumer made = new DefaultMQPullConsumer(group);
        configure(made);
        made.setInstanceName("puller-" + group);
        made.setPersistConsumerOffsetInterval(300);
        made.setConsumerPullTimeoutMillis(PATIENCE_MS);
        made.setBrokerSuspendMaxTimeMillis(60_000);  // so that an answer within that time is no expiry
        made.setConsumerTimeoutMillisWhenSuspend(90_000);
        made.start();
        pullers.put(group, made);
        return made;
    }

    private void pull(Command c, Map<String, Object> answer) throws Exception {
        DefaultMQPullConsumer puller = puller(c.text("group"));
        List<Object> messages = new ArrayList<>();
        List<String> statuses = new ArrayList<>();
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(c.text("topic"))) {
            long offset = c.number("offset", 0);
            PullResult result;
            do {
                result = puller.pull(queue, Filters.selector(c), offset, 32);
                statuses.add(result.getPullStatus().name());
                offset = result.getNextBeginOffset();
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(m -> messages.add(Rows.describe(m)));
                }
            } while (offset < result.getMaxOffset());
        }
        answer.put("messages", messages);
        answer.put("statuses", statuses);
    }

    private void hold(Command c, Map<String, Object> answer) throws Exception {
        DefaultMQPullConsumer puller = puller(c.text("group"));
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(c.text("topic"))) {
            if (queue.getQueueId() == c.number("queue", 0)) {
                long offset = puller.maxOffset(queue);
                emit(Map.of("event", "holding", "offset", offset));
                PullResult result = puller.pullBlockIfNotFound(queue, "*", offset, 32);
                answer.put("status", result.getPullStatus().name());
                answer.put("count", result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size());
            }
        }
    }

    private void lite(Command c, Map<String, Object> answer) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(c.text("group"));
        configure(consumer);
        consumer.setInstanceName("lite-" + c.text("group"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(true);
        consumer.subscribe(c.text("topic"), Filters.selector(c));
        consumer.start();
        List<Object> messages = new ArrayList<>();
        long deadline = System.currentTimeMillis() + c.number("wait_ms", 5000);
        while (messages.size() < c.number("count", 1) && System.currentTimeMillis() < deadline) {
            consumer.poll(200).forEach(m -> messages.add(Rows.describe(m)));
        }
        consumer.shutdown();
        answer.put("messages", messages);
    }

    /**
     * At once and answered, and in the consumer's own table too: its timer reports from there what it last fetched or
     * set, but only once it has been assigned the queues.
     */
    private void commit(Command c) throws Exception {
        DefaultMQPullConsumer puller = puller(c.text("group"));
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(c.text("topic"))) {
            long offset = c.number("base", 0) + queue.getQueueId();
            puller.updateConsumeOffset(queue, offset);
            puller.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
        }
    }

    private void committed(Command c, Map<String, Object> answer) throws Exception {
        DefaultMQPullConsumer puller = puller(c.text("group"));
        Map<String, Object> offsets = new LinkedHashMap<>();
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(c.text("topic"))) {
            offsets.put(String.valueOf(queue.getQueueId()), puller.fetchConsumeOffset(queue, true));
        }
        answer.put("offsets", offsets);
    }

    private void offsets(Command c, Map<String, Object> answer) throws Exception {
        DefaultMQPullConsumer puller = puller(c.text("group"));
        List<Object> rows = new ArrayList<>();
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(c.text("topic"))) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("queueId", queue.getQueueId());
            row.put("brokerName", queue.getBrokerName());
            row.put("min", puller.minOffset(queue));
            row.put("max", puller.maxOffset(queue));
            row.put("earliest_store_time", admin().earliestMsgStoreTime(queue));
            row.put("by_time", puller.searchOffset(queue, c.number("time", 0)));
            rows.add(row);
        }
        answer.put("queues", rows);
    }

    private void query(Command c, Map<String, Object> answer) throws Exception {
        long now = System.currentTimeMillis();
        List<Object> found = new ArrayList<>();
        for (MessageExt message : admin().queryMessage(c.text("topic"), c.text("key"), 32, now - 3_600_000L, now + 60_000L).getMessageList()) {
            found.add(Rows.describe(message));
        }
        answer.put("messages", found);
    }

    private synchronized DefaultMQAdminExt admin() throws MQClientException {
        if (admin == null) {
            DefaultMQAdminExt made = new DefaultMQAdminExt(10_000);
            configure(made);
            made.setInstanceName("interop-admin");
            made.start();
            admin = made;
        }
        return admin;
    }

    private void create(Command c) throws Exception {
        TopicConfig config = new TopicConfig(c.text("topic"), (int) c.number("queues", 4), (int) c.number("queues", 4), 6);
        admin().createAndUpdateTopicConfig(c.text("broker"), config);
    }

    private void cluster(Map<String, Object> answer) throws Exception {
        var cluster = admin().examineBrokerClusterInfo();
        answer.put("brokers", new ArrayList<>(cluster.getBrokerAddrTable().keySet()));
        List<String> addresses = new ArrayList<>();
        cluster.getBrokerAddrTable().values().forEach(data -> addresses.addAll(data.getBrokerAddrs().values()));
        answer.put("addresses", addresses);
        answer.put("topics", new ArrayList<>(admin().fetchAllTopicList().getTopicList()));
        answer.put("runtime", new HashMap<>(admin().fetchBrokerRuntimeStats(addresses.get(0)).getTable()));
    }
}
