import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The consumer of account.py in plain JDBC on PostgreSQL: java -cp ... Account GROUP NAMESERVER jdbc:postgresql://...
 *
 * The texts are those of gantry.guarantee.statements, with the parameters in the order of their places. Log row,
 * confirmation and effect are one transaction, and the message is acknowledged only after its commit.
 */
public final class Account {
    static final String LOG = """
        INSERT INTO guarantee_log (consumer_group, message_id, topic, broker, queue_id, queue_offset, received_at_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (consumer_group, message_id) DO NOTHING""";
    static final String LOOK = """
        SELECT effect, owner, owner_until_ms FROM guarantee_log WHERE message_id = ? AND consumer_group = ?""";
    static final String CONFIRM = """
        UPDATE guarantee_delivery
        SET state = 'confirmed', changed_at_ms = ?, changed_by = ?
        WHERE message_id = ? AND consumer_group = ? AND (state IN ('open', 'legacy') OR (state = 'closed' AND begun_at_ms IS NOT NULL))""";
    static final String VERDICT = """
        SELECT s.status, d.state FROM guarantee_stub s
        LEFT JOIN guarantee_delivery d
            ON d.message_id = s.message_id AND d.consumer_group = ?
        WHERE s.message_id = ?""";
    static final String REFUSE = """
        UPDATE guarantee_log
        SET effect = 'refused'
        WHERE message_id = ? AND consumer_group = ?""";
    static final Pattern CENTS = Pattern.compile("\"cents\": *(\\d+)");

    private final String group;
    private final String url;
    private final ThreadLocal<Connection> connections = new ThreadLocal<>();

    private Account(String group, String url) {
        this.group = group;
        this.url = url;
    }

    public static void main(String[] arguments) throws Exception {
        Account account = new Account(arguments[0], arguments[2]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[0]);
        consumer.setNamesrvAddr(arguments[1]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe("Orders", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    account.handle(message, context.getMessageQueue().getTopic());
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (SQLException | IllegalStateException error) {
                System.err.println("delivered again: " + error);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
        consumer.start();
        System.out.println("ready");
        Thread.currentThread().join();
    }

    /** One transaction; an exception means that the message has to be delivered again. */
    private void handle(MessageExt message, String topic) throws SQLException {
        Connection connection = connection();
        try {
            if (arrives(connection, message, topic)) {
                Matcher cents = CENTS.matcher(new String(message.getBody(), StandardCharsets.UTF_8));
                if (!cents.find()) {
                    throw new IllegalStateException("no cents in message " + message.getMsgId());
                }
                changed(connection, "UPDATE account SET orders = orders + 1, cents = cents + ? WHERE consumer_group = ?",
                    Long.parseLong(cents.group(1)), group);
            }
            connection.commit();
        } catch (SQLException | RuntimeException error) {
            connections.remove();
            connection.close(); // undoes what was not committed; the outcome of a failed commit stays unknown
            throw error;
        }
    }

    /** Whether the effect has to be carried out now. */
    private boolean arrives(Connection connection, MessageExt message, String topic) throws SQLException {
        String id = message.getMsgId(); // the producer's, the same for every copy
        long now = System.currentTimeMillis();
        if (changed(connection, LOG, group, id, topic, message.getBrokerName(), message.getQueueId(),
                message.getQueueOffset(), now) != 1) {
            List<String> found = row(connection, LOOK, id, group);
            boolean isDone = found != null && found.get(0).equals("done");
            if (!isDone && (found == null || !found.get(0).equals("refused"))) {
                throw new IllegalStateException("another process works on " + id);
            }
            if (isDone) {
                changed(connection, CONFIRM, now, group, id, group);
            }
            return false;
        }
        if (changed(connection, CONFIRM, now, group, id, group) == 1) {
            return true;
        }
        List<String> verdict = row(connection, VERDICT, group, id);
        if (verdict == null || (!verdict.get(0).equals("void")
                && !List.of("confirmed", "void", "closed").contains(String.valueOf(verdict.get(1))))) {
            return true; // no stub here, or a group that was not declared
        }
        changed(connection, REFUSE, id, group);
        return false;
    }

    private Connection connection() throws SQLException {
        Connection connection = connections.get();
        if (connection == null) {
            connection = DriverManager.getConnection(url);
            connection.setAutoCommit(false);
            connections.set(connection);
        }
        return connection;
    }

    private static int changed(Connection connection, String text, Object... values) throws SQLException {
        try (PreparedStatement statement = prepared(connection, text, values)) {
            return statement.executeUpdate();
        }
    }

    private static List<String> row(Connection connection, String text, Object... values) throws SQLException {
        try (PreparedStatement statement = prepared(connection, text, values); ResultSet rows = statement.executeQuery()) {
            return rows.next() ? java.util.Arrays.asList(rows.getString(1), rows.getString(2)) : null;
        }
    }

    private static PreparedStatement prepared(Connection connection, String text, Object... values) throws SQLException {
        PreparedStatement statement = connection.prepareStatement(text);
        for (int place = 0; place < values.length; place++) {
            statement.setObject(place + 1, values[place]);
        }
        return statement;
    }
}
