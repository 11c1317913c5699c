import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What mqadmin asks about groups, clients and messages, and resets of groups at work. */
final class Queries {
    private Queries() {
    }

    static void run(DefaultMQAdminExt admin, String nameServer, Command c, Map<String, Object> answer) throws Exception {
        switch (c.text("op")) {
            case "survey": survey(admin, c, answer); break;
            case "stats": stats(admin, c, answer); break;
            case "topic_stats": topicStats(admin, c, answer); break;
            case "connections": connections(admin, c, answer); break;
            case "running": running(admin, c, answer); break;
            case "reset": reset(admin, c, answer); break;
            case "query_between": queryBetween(admin, c, answer); break;
            case "traced": traced(nameServer, c, answer); break;
            default: throw new IllegalArgumentException("unknown op " + c.text("op"));
        }
    }

    /** Everything that compares groups, of one group with one member online. */
    private static void survey(DefaultMQAdminExt admin, Command c, Map<String, Object> answer) throws Exception {
        String group = c.text("group"), topic = c.text("topic"), client = c.text("client"), broker = c.text("broker");
        var direct = admin.consumeMessageDirectly(group, client, topic, c.text("id"));
        answer.put("direct", String.valueOf(direct.getConsumeResult()));
        long known = 0, delay = 0;
        for (var span : admin.queryConsumeTimeSpan(topic, group)) {
            known += span.getMaxTimeStamp() > 0 && span.getConsumeTimeStamp() >= span.getMinTimeStamp() ? 1 : 0;
            delay = Math.max(delay, span.getDelayTime());
        }
        answer.put("spans", known);
        answer.put("delay", delay);
        answer.put("put", admin.viewBrokerStatsData(broker, "TOPIC_PUT_NUMS", topic).getStatsDay().getSum());
        long offsets = 0;
        for (var group2 : admin.fetchConsumeStatsInBroker(broker, false, 10000).getConsumeStatsList()) {
            for (var stats : group2.getOrDefault(group, List.of())) {
                offsets += stats.getOffsetTable().values().stream().mapToLong(one -> one.getConsumerOffset()).sum();
            }
        }
        answer.put("offsets", offsets);
        var status = admin.getConsumeStatus(topic, group, client);
        answer.put("where", status.getOrDefault(client, Map.of()).values().stream().mapToLong(Long::longValue).sum());
        answer.put("producers", new ArrayList<>(admin.getAllProducerInfo(broker).getData().keySet()));
    }

    private static void stats(DefaultMQAdminExt admin, Command c, Map<String, Object> answer) throws Exception {
        var stats = admin.examineConsumeStats(c.text("group"));
        List<Object> queues = new ArrayList<>();
        stats.getOffsetTable().forEach((queue, wrapper) -> {
            if (queue.getTopic().equals(c.text("topic"))) {
                queues.add(Map.of("queue", queue.getQueueId(), "broker", wrapper.getBrokerOffset(),
                    "consumer", wrapper.getConsumerOffset(), "last", wrapper.getLastTimestamp()));
            }
        });
        answer.put("queues", queues);
        answer.put("tps", stats.getConsumeTps());
    }

    private static void topicStats(DefaultMQAdminExt admin, Command c, Map<String, Object> answer) throws Exception {
        List<Object> queues = new ArrayList<>();
        admin.examineTopicStats(c.text("topic")).getOffsetTable().forEach((queue, offsets) -> queues.add(Map.of(
            "queue", queue.getQueueId(), "min", offsets.getMinOffset(), "max", offsets.getMaxOffset(),
            "last", offsets.getLastUpdateTimestamp())));
        answer.put("queues", queues);
    }

    private static void connections(DefaultMQAdminExt admin, Command c, Map<String, Object> answer) throws Exception {
        var consumers = admin.examineConsumerConnectionInfo(c.text("group"));
        List<Object> ids = new ArrayList<>();
        consumers.getConnectionSet().forEach(one -> ids.add(one.getClientId()));
        answer.put("consumers", ids);
        answer.put("model", String.valueOf(consumers.getMessageModel()));
        answer.put("topics", new ArrayList<>(consumers.getSubscriptionTable().keySet()));
        List<Object> producers = new ArrayList<>();
        admin.examineProducerConnectionInfo(c.text("producers"), c.text("topic")).getConnectionSet()
            .forEach(one -> producers.add(one.getClientId()));
        answer.put("producers", producers);
    }

    private static void running(DefaultMQAdminExt admin, Command c, Map<String, Object> answer) throws Exception {
        var info = admin.getConsumerRunningInfo(c.text("group"), c.text("client"), false);
        List<Object> topics = new ArrayList<>();
        info.getSubscriptionSet().forEach(one -> topics.add(one.getTopic()));
        answer.put("topics", topics);
        answer.put("queues", info.getMqTable().size());
        answer.put("type", String.valueOf(info.getProperties().get("PROP_CONSUME_TYPE")));
        answer.put("text", info.formatString());
    }

    private static void reset(DefaultMQAdminExt admin, Command c, Map<String, Object> answer) throws Exception {
        List<Object> queues = new ArrayList<>();
        admin.resetOffsetByTimestamp(c.text("topic"), c.text("group"), c.number("time", -1), true)
            .forEach((queue, offset) -> queues.add(Map.of("queue", queue.getQueueId(), "offset", offset)));
        answer.put("queues", queues);
    }

    private static void queryBetween(DefaultMQAdminExt admin, Command c, Map<String, Object> answer) throws Exception {
        List<Object> rows = new ArrayList<>();
        admin.queryMessage(c.text("topic"), c.text("key"), 64, c.number("begin", 0), c.number("end", Long.MAX_VALUE))
            .getMessageList().forEach(message -> rows.add(Rows.describe(message)));
        answer.put("messages", rows);
    }

    /** Sends with the client's own trace on; a shutdown sees the trace off. */
    private static void traced(String nameServer, Command c, Map<String, Object> answer) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(c.text("group"), (RPCHook) null, true, "RMQ_SYS_TRACE_TOPIC");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("traced-" + c.text("group"));
        producer.start();
        Message message = new Message(c.text("topic"), "", c.text("key"), "traced".getBytes(StandardCharsets.UTF_8));
        // It stays: the trace leaves later, and the first one has to wait until its topic has a route.
        answer.put("msgId", producer.send(message).getMsgId());
    }
}
