import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Reads a ledger back: every message by queue offset, and every n-th by key, offset id and unique id.
 *
 * <p>By queue offset means that each queue holds exactly the offsets 0..max-1, each with the body, keys, tag and ids
 * that the ledger says; nothing missing, nothing more. Differences are listed, not thrown, so that one run shows all.
 *
 * <p>A key may find the same record twice: after a crash Apache's broker indexes the newest indexed record again
 * (IndexService.buildIndex skips what lies below the end offset, not what lies at it), in its own folders too.
 */
final class BulkCheck {
    private static final int DIFFERENCES_MAX = 20;
    private static final int READERS = 4;
    private final DefaultMQAdminExt admin;
    private final DefaultMQPullConsumer puller;
    private final Command command;
    private final List<String> differences = new ArrayList<>();

    BulkCheck(DefaultMQAdminExt admin, DefaultMQPullConsumer puller, Command command) {
        this.admin = admin;
        this.puller = puller;
        this.command = command;
    }

    void check(Map<String, Object> answer) throws Exception {
        String topic = command.text("topic");
        Map<String, String[]> rows = new HashMap<>();
        for (String line : Files.readAllLines(Path.of(command.text("ledger")))) {
            String[] row = line.split("\t");
            if (row[0].equals(topic) && rows.put(row[4] + "/" + row[5], row) != null) {
                differ("ledger: queue offset " + row[4] + "/" + row[5] + " was given twice");
            }
        }
        answer.put("ledger", rows.size());
        answer.put("pulled", pullAll(topic, rows));
        answer.put("looked_up", lookUp(topic, new ArrayList<>(rows.values()), (int) command.number("every", 1)));
        answer.put("differences", differences);
    }

    private long pullAll(String topic, Map<String, String[]> rows) throws Exception {
        long pulled = 0;
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(topic)) {
            long max = puller.maxOffset(queue);
            long offset = puller.minOffset(queue);
            if (offset != 0) {
                differ("queue " + queue.getQueueId() + " starts at " + offset);
            }
            while (offset < max && differences.size() < DIFFERENCES_MAX) {
                PullResult result = puller.pull(queue, "*", offset, 32);
                if (result.getMsgFoundList() == null || result.getMsgFoundList().isEmpty()) {
                    differ("queue " + queue.getQueueId() + " at " + offset + " of " + max + ": " + result);
                    break;
                }
                for (MessageExt message : result.getMsgFoundList()) {
                    if (message.getQueueOffset() != offset) {
                        differ("queue " + queue.getQueueId() + ": offset " + message.getQueueOffset() + " where " + offset + " was due");
                    }
                    String[] row = rows.get(queue.getQueueId() + "/" + offset);
                    if (row == null) {
                        differ("queue " + queue.getQueueId() + " holds an unknown message at " + offset + ": " + message);
                    } else {
                        compare("pull", row, message);
                    }
                    offset++;
                    pulled++;
                }
            }
        }
        return pulled;
    }

    private long lookUp(String topic, List<String[]> rows, int every) throws Exception {
        ExecutorService readers = Executors.newFixedThreadPool(READERS);
        List<Future<Long>> shares = new ArrayList<>();
        for (int reader = 0; reader < READERS; reader++) {
            int first = reader * every;
            Callable<Long> share = () -> {
                long looked = 0;
                for (int i = first; i < rows.size() && differences.size() < DIFFERENCES_MAX; i += every * READERS) {
                    lookUpOne(topic, rows.get(i));
                    looked++;
                }
                return looked;
            };
            shares.add(readers.submit(share));
        }
        long looked = 0;
        for (Future<Long> share : shares) {
            looked += share.get();
        }
        readers.shutdown();
        return looked;
    }

    private void lookUpOne(String topic, String[] row) {
        try {
            compare("offset id", row, admin.viewMessage(topic, row[3]));
            compare("unique id", row, admin.viewMessage(topic, row[2]));
            List<MessageExt> found = admin.queryMessage(topic, Bulk.key(topic, Long.parseLong(row[1])), 32, 0, Long.MAX_VALUE).getMessageList();
            long different = found.stream().map(MessageExt::getCommitLogOffset).distinct().count();
            if (different != 1) {
                differ("key of message " + row[1] + " finds " + different + " messages: " + found);
            }
            compare("key", row, found.get(0));
        } catch (Exception e) {
            differ("message " + row[1] + " (" + row[2] + ", " + row[3] + "): " + e);
        }
    }

    private void compare(String how, String[] row, MessageExt message) {
        long number = Long.parseLong(row[1]);
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        String keys = Bulk.key(row[0], number) + " G-" + number % 100;
        if (!body.equals(Bulk.body(row[0], number)) || !keys.equals(message.getKeys()) || !Bulk.tag(number).equals(message.getTags())) {
            differ(how + ": message " + number + " has body " + body + ", keys " + message.getKeys() + ", tag " + message.getTags());
        }
        if (message.getQueueId() != Integer.parseInt(row[4]) || message.getQueueOffset() != Long.parseLong(row[5])) {
            differ(how + ": message " + number + " stands at " + message.getQueueId() + "/" + message.getQueueOffset() + ", ledger " + row[4] + "/" + row[5]);
        }
        String offsetId = message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null;
        if (!row[2].equals(message.getMsgId()) || offsetId != null && !row[3].equals(offsetId)) {
            differ(how + ": message " + number + " has ids " + message.getMsgId() + ", " + offsetId + ", ledger " + row[2] + ", " + row[3]);
        }
    }

    private synchronized void differ(String text) {
        if (differences.size() < DIFFERENCES_MAX) {
            differences.add(text);
        }
    }
}
