package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.MQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPushConsumer;
import org.apache.rocketmq.client.producer.MQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.clientinterface.MQConsumer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.MQAdminExt;
import org.awaitility.Awaitility;
import org.junit.Assert;

/**
 * What Apache's tests inherit, for servers that run already: three brokers and a name server of other processes.
 *
 * System properties say where: conformance.nameserver=HOST:PORT, conformance.cluster=NAME and
 * conformance.brokers=NAME=HOST:PORT,... Names and meanings are those of Apache's class of this name.
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("conformance.nameserver");
    protected static final String CLUSTER_NAME = System.getProperty("conformance.cluster");
    protected static final String BROKER1_NAME;
    protected static final String BROKER2_NAME;
    protected static final String BROKER3_NAME;
    protected static final int BROKER_NUM = 3;
    protected static final int WAIT_TIME = 5;
    protected static final int CONSUME_TIME = 2 * 60 * 1000;
    protected static final int QUEUE_NUMBERS = 8;
    protected static NamesrvController namesrvController = RemoteBroker.nameServer();
    protected static BrokerController brokerController1;
    protected static BrokerController brokerController2;
    protected static BrokerController brokerController3;
    protected static List<BrokerController> brokerControllerList;
    protected static Map<String, BrokerController> brokerControllerMap;
    protected static List<Object> mqClients = Collections.synchronizedList(new ArrayList<>());
    protected static boolean debug = false;

    static {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        DefaultMQAdminExt admin = new DefaultMQAdminExt(5_000);
        admin.setNamesrvAddr(NAMESRV_ADDR);
        admin.setInstanceName("stand-in");
        try {
            admin.start();
            MQAdminTestUtils.startAdmin(NAMESRV_ADDR);
            brokerControllerMap = new LinkedHashMap<>();
            for (String one : System.getProperty("conformance.brokers").split(",")) {
                String[] parts = one.split("=");
                brokerControllerMap.put(parts[0], RemoteBroker.of(admin, CLUSTER_NAME, parts[0], parts[1]));
            }
        } catch (Exception error) {
            throw new ExceptionInInitializerError(error);
        }
        brokerControllerList = new ArrayList<>(brokerControllerMap.values());
        List<String> names = new ArrayList<>(brokerControllerMap.keySet());
        BROKER1_NAME = names.get(0);
        BROKER2_NAME = names.get(1);
        BROKER3_NAME = names.get(2);
        brokerController1 = brokerControllerList.get(0);
        brokerController2 = brokerControllerList.get(1);
        brokerController3 = brokerControllerList.get(2);
    }

    public static void waitBrokerRegistered(String nameServer, String cluster, int expected) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(500);
        admin.setNamesrvAddr(nameServer);
        try {
            admin.start();
            Awaitility.await().atMost(30, TimeUnit.SECONDS).ignoreExceptions()
                .until(() -> admin.examineTopicRouteInfo(cluster).getBrokerDatas().size() == expected);
        } catch (Exception error) {
            Assert.fail("the brokers are not registered: " + error);
        } finally {
            admin.shutdown();
        }
    }

    /** Brokers of other processes say by their offsets what they have dispatched. */
    public boolean awaitDispatchMs(long atMostMs) throws Exception {
        return true;
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopic(TopicMessageType messageType) {
        return initTopicWithName(MQRandomUtils.getRandomTopic(), messageType);
    }

    public static String initTopicOnSampleTopicBroker(String sampleTopic) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sampleTopic);
    }

    public static String initTopicOnSampleTopicBroker(String sampleTopic, TopicMessageType messageType) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sampleTopic, messageType);
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicWithName(String topic, TopicMessageType messageType) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, messageType);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String topic, String sampleTopic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sampleTopic, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String topic, String sampleTopic, TopicMessageType messageType) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sampleTopic, messageType);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        return initConsumerGroup(config);
    }

    public static String initConsumerGroup(SubscriptionGroupConfig config) {
        MQAdminTestUtils.createSub(NAMESRV_ADDR, CLUSTER_NAME, config);
        return config.getGroupName();
    }

    public static DefaultMQAdminExt getAdmin(String nameServer) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3_000);
        admin.setNamesrvAddr(nameServer);
        admin.setPollNameServerInterval(100);
        mqClients.add(admin);
        return admin;
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic) {
        return getProducer(nameServer, topic, false);
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic, boolean useTls) {
        return kept(new RMQNormalProducer(nameServer, topic, useTls));
    }

    public static RMQNormalProducer getProducer(
        String nameServer, String topic, String producerGroup, String instanceName) {
        return kept(new RMQNormalProducer(nameServer, topic, producerGroup, instanceName));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
        String nameServer, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(nameServer, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String nameServer, String topic) {
        return kept(new RMQAsyncSendProducer(nameServer, topic));
    }

    public static RMQNormalConsumer getConsumer(
        String nameServer, String topic, String expression, AbstractListener listener) {
        return getConsumer(nameServer, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String nameServer, String topic, String expression, AbstractListener listener, boolean useTls) {
        return getConsumer(nameServer, initConsumerGroup(), topic, expression, listener, useTls);
    }

    public static RMQNormalConsumer getConsumer(
        String nameServer, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(nameServer, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
        String nameServer, String group, String topic, String expression, AbstractListener listener, boolean useTls) {
        RMQNormalConsumer consumer =
            ConsumerFactory.getRMQNormalConsumer(nameServer, group, topic, expression, listener, useTls);
        mqClients.add(consumer);
        return consumer;
    }

    public static Set<String> getBrokers() {
        return brokerControllerList.stream().map(BrokerController::getBrokerAddr).collect(Collectors.toSet());
    }

    public static void shutdown() {
        List<Object> clients = new ArrayList<>(mqClients);
        mqClients.clear();
        shutdown(clients);
    }

    /** Ends clients beside the next test: a producer waits for what it has under way. */
    public static void shutdown(List<Object> clients) {
        for (Object client : Arrays.asList(clients.toArray())) {
            Thread thread = new Thread(() -> end(client), "shutdown");
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }

    private static void end(Object client) {
        if (client instanceof AbstractMQProducer) {
            ((AbstractMQProducer) client).shutdown();
        } else if (client instanceof MQConsumer) {
            ((MQConsumer) client).shutdown();
        } else if (client instanceof MQAdminExt) {
            ((MQAdminExt) client).shutdown();
        } else if (client instanceof MQProducer) {
            ((MQProducer) client).shutdown();
        } else if (client instanceof MQPullConsumer) {
            ((MQPullConsumer) client).shutdown();
        } else if (client instanceof MQPushConsumer) {
            ((MQPushConsumer) client).shutdown();
        }
    }
}
