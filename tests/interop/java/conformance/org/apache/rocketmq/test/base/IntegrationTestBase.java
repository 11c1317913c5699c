package org.apache.rocketmq.test.base;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicAttributes;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.util.MQAdminTestUtils;

/** Makes topics as Apache's class of this name does, and no servers: they run in processes of their own. */
public class IntegrationTestBase {
    private static final int QUEUES = 8;
    private static final int TOPIC_WAIT_S = 30;

    public static String createBaseDir() {
        throw RemoteBroker.notHere("createBaseDir");
    }

    public static BrokerController createAndStartBroker(MessageStoreConfig store, BrokerConfig broker) {
        throw RemoteBroker.notHere("createAndStartBroker");
    }

    public static boolean initTopic(String topic, String nameServer, String cluster, CQType queueType) {
        return initTopic(topic, nameServer, cluster, QUEUES, queueType);
    }

    public static boolean initTopic(String topic, String nameServer, String cluster, TopicMessageType messageType) {
        return initTopic(topic, nameServer, cluster, QUEUES, CQType.SimpleCQ, messageType);
    }

    public static boolean initTopic(
        String topic, String nameServer, String cluster, int queues, CQType queueType) {
        return initTopic(topic, nameServer, cluster, queues, queueType, TopicMessageType.NORMAL);
    }

    /** Makes a topic; an attribute with its usual value is not sent. */
    public static boolean initTopic(
        String topic, String nameServer, String cluster, int queues, CQType queueType, TopicMessageType messageType) {
        Map<String, String> attributes = new HashMap<>();
        if (queueType != CQType.SimpleCQ) {
            attributes.put("+" + TopicAttributes.QUEUE_TYPE_ATTRIBUTE.getName(), queueType.toString());
        }
        if (messageType != TopicMessageType.NORMAL) {
            attributes.put("+" + TopicAttributes.TOPIC_MESSAGE_TYPE_ATTRIBUTE.getName(), messageType.toString());
        }
        return MQAdminTestUtils.createTopic(nameServer, cluster, topic, queues, attributes, TOPIC_WAIT_S);
    }
}
