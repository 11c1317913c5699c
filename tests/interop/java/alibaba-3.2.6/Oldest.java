import com.alibaba.rocketmq.client.consumer.DefaultMQPushConsumer;
import com.alibaba.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import com.alibaba.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import com.alibaba.rocketmq.client.producer.LocalTransactionState;
import com.alibaba.rocketmq.client.producer.TransactionMQProducer;
import com.alibaba.rocketmq.common.consumer.ConsumeFromWhere;
import com.alibaba.rocketmq.common.message.Message;

/** RocketMQ 3.2.6: sends a message, commits one and rolls one back, and prints what a consumer gets until two came. */
public class Oldest {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        TransactionMQProducer producer = new TransactionMQProducer(topic + "-producers");
        producer.setNamesrvAddr(arguments[0]);
        producer.setTransactionCheckListener(half -> LocalTransactionState.UNKNOW);
        producer.start();
        System.out.println("sent " + producer.send(new Message(topic, "plain".getBytes())).getSendStatus());
        for (LocalTransactionState end : new LocalTransactionState[] {
                LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.COMMIT_MESSAGE}) {
            Message message = new Message(topic, end.name().getBytes());
            System.out.println("ended " + producer.sendMessageInTransaction(message, (half, more) -> end, null)
                    .getLocalTransactionState());
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic + "-consumers");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> System.out.println("got " + new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.in.read(); // until the test has read enough
        consumer.shutdown();
        producer.shutdown();
    }
}
