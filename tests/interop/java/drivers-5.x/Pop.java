import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Push consumers that pop: only 5.x has them, so this is compiled only there. */
public final class Pop implements Driver.Extra {
    @Override
    public void run(DefaultMQAdminExt admin, DefaultMQPushConsumer consumer, Command c, Map<String, Object> answer) throws Exception {
        if (c.text("op").equals("pop_mode")) {
            MessageRequestMode mode = MessageRequestMode.valueOf(c.text("mode"));
            admin.setMessageRequestMode(c.text("broker"), c.text("topic"), c.text("group"), mode, (int) c.number("share", 0), 30_000);
            return;
        }
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(c.number("invisible_ms", 60_000));
        consumer.setPopBatchNums((int) c.number("batch", 32));
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setMaxReconsumeTimes((int) c.number("max_times", -1));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(c.text("topic"), Filters.selector(c));
        if (c.text("order").isEmpty()) {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                boolean isFine = take(c, messages);
                return isFine ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        } else {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                context.setSuspendCurrentQueueTimeMillis(c.number("suspend_ms", 1000));
                return take(c, messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        }
        retrySoon(consumer, (int) c.number("retry_s", 10));
        consumer.start();
    }

    /** Emits each message; says whether it was handled. With "stuck" it never is: the listener does not come back. */
    private static boolean take(Command c, Iterable<MessageExt> messages) {
        boolean isFine = true;
        for (MessageExt message : messages) {
            Map<String, Object> event = Rows.describe(message);
            event.put("event", "message");
            event.put("consumer", c.text("id"));
            event.put("handle", message.getProperty("POP_CK"));
            Driver.emit(event);
            isFine &= c.text("fail").isEmpty() && message.getReconsumeTimes() >= c.number("fail_times", 0);
        }
        if (!c.text("stuck").isEmpty()) {
            try {
                new CountDownLatch(1).await();
            } catch (InterruptedException stopped) {
                return false;
            }
        }
        return isFine;
    }

    /** The client's table of delays begins with 10 s and cannot be set. */
    private static void retrySoon(DefaultMQPushConsumer consumer, int seconds) throws Exception {
        Field table = consumer.getDefaultMQPushConsumerImpl().getClass().getDeclaredField("popDelayLevel");
        table.setAccessible(true);
        Arrays.fill((int[]) table.get(consumer.getDefaultMQPushConsumerImpl()), seconds);
    }
}
