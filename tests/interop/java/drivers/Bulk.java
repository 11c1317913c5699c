import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Fills topics with numbered messages and writes down what was acknowledged.
 *
 * <p>The ledger has one line a message: topic, number, message id, offset message id, queue, queue offset. Body, keys
 * and tag follow from topic and number, so that whoever reads the ledger knows what must come back. Every ROUND
 * messages BATCH of them go as one batch; the others are asynchronous with a window.
 */
final class Bulk {
    private static final int WINDOW = 256;
    private static final int ROUND = 100;
    private static final int BATCH = 16;
    private final DefaultMQProducer producer;
    private final Command command;
    private final List<String> lines = new ArrayList<>();
    private final List<String> failures = new ArrayList<>();

    Bulk(DefaultMQProducer producer, Command command) {
        this.producer = producer;
        this.command = command;
    }

    static String body(String topic, long number) {
        String seed = topic + "|" + number + "|";
        return seed + "0123456789abcdef".repeat((int) (number % 13));
    }

    static String key(String topic, long number) {
        return "K-" + topic + "-" + number;
    }

    static String tag(long number) {
        return number % 2 == 0 ? "TagA" : "TagB";
    }

    static Message message(String topic, long number) {
        return new Message(topic, tag(number), key(topic, number) + " G-" + number % 100, body(topic, number).getBytes(StandardCharsets.UTF_8));
    }

    void fill(Map<String, Object> answer) throws Exception {
        String topic = command.text("topic");
        long start = command.number("start", 0);
        long end = start + command.number("count", 1);
        Semaphore window = new Semaphore(WINDOW);
        for (long i = start; i < end; ) {
            if (i % ROUND == 0 && i + BATCH <= end) {
                batch(topic, i);
                i += BATCH;
                continue;
            }
            long number = i++;
            if (!window.tryAcquire(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the window stayed full before message " + number);
            }
            producer.send(message(topic, number), Driver.callback((result, error) -> {
                note(topic, number, result, error);
                window.release();
            }));
        }
        if (!window.tryAcquire(WINDOW, 60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("sends left without an answer");
        }
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(command.text("ledger")), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            for (String line : lines) {
                out.write(line);
                out.newLine();
            }
        }
        answer.put("acknowledged", lines.size());
        answer.put("failures", failures);
    }

    private void batch(String topic, long start) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < BATCH; i++) {
            messages.add(message(topic, start + i));
        }
        SendResult result = producer.send(messages);
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < BATCH; i++) {
            write(topic, start + i, ids[i], offsetIds[i], result.getMessageQueue().getQueueId(), result.getQueueOffset() + i);
        }
    }

    private void note(String topic, long number, SendResult result, Throwable error) {
        if (error != null || result.getSendStatus() != SendStatus.SEND_OK) {
            synchronized (this) {
                failures.add(number + ": " + (error == null ? result.getSendStatus() : error));
            }
            return;
        }
        write(topic, number, result.getMsgId(), result.getOffsetMsgId(), result.getMessageQueue().getQueueId(), result.getQueueOffset());
    }

    private synchronized void write(String topic, long number, String id, String offsetId, int queue, long offset) {
        lines.add(String.join("\t", topic, String.valueOf(number), id, offsetId, String.valueOf(queue), String.valueOf(offset)));
    }
}
