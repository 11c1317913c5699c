import java.lang.reflect.InvocationTargetException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** What messages ask to be delayed by; what only 5.x has is looked up by name, because 4.9 compiles this file too. */
final class Delays {
    private Delays() {
    }

    static void ask(Message message, Command c) throws Exception {
        if (c.number("delay_level", 0) > 0) {
            message.setDelayTimeLevel((int) c.number("delay_level", 0));
        }
        if (c.number("delay_ms", 0) > 0) {
            Message.class.getMethod("setDelayTimeMs", long.class).invoke(message, c.number("delay_ms", 0));
        }
        if (c.number("deliver_in_ms", 0) > 0) {
            long at = System.currentTimeMillis() + c.number("deliver_in_ms", 0);
            Message.class.getMethod("setDeliverTimeMs", long.class).invoke(message, at);
        }
    }

    static String recall(DefaultMQProducer producer, String topic, String handle) throws Exception {
        try {
            return (String) DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, topic, handle);
        } catch (InvocationTargetException error) {
            throw (Exception) error.getCause();
        }
    }

    static Object handle(SendResult result) {
        try {
            return SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (ReflectiveOperationException older) {
            return null;
        }
    }
}
