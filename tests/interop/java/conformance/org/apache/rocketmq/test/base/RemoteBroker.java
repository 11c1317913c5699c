package org.apache.rocketmq.test.base;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.pop.orderly.ConsumerOrderInfoManager;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.junit.AssumptionViolatedException;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;

/**
 * A broker of another process where a test expects one of its own: what it looks up there is asked by requests.
 *
 * Settings that a test changes are taken and have no effect. For everything else the test counts as not applicable.
 */
final class RemoteBroker {
    private static final long TIMEOUT_MS = 5_000;
    private static final long UNBLOCKED_WITHIN_MS = 1_000;

    private final DefaultMQAdminExt admin;
    private final String name;
    private final String address;

    private RemoteBroker(DefaultMQAdminExt admin, String name, String address) {
        this.admin = admin;
        this.name = name;
        this.address = address;
    }

    /** Returns the stand-in of the broker of this name and address. */
    static BrokerController of(DefaultMQAdminExt admin, String cluster, String name, String address) throws Exception {
        RemoteBroker broker = new RemoteBroker(admin, name, address);
        BrokerConfig config = new BrokerConfig();
        config.setBrokerClusterName(cluster);
        config.setBrokerName(name);
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        MessageStore store = strict(DefaultMessageStore.class);  // some tests look at its class
        answer(call -> 0L, store).dispatchBehindBytes();
        answer(broker::minOffset, store).getMinOffsetInQueue(Mockito.any(), Mockito.anyInt());
        answer(broker::maxOffset, store).getMaxOffsetInQueue(Mockito.any(), Mockito.anyInt());
        ConsumerOffsetManager offsets = strict(ConsumerOffsetManager.class);
        answer(broker::consumerOffset, offsets).queryOffset(Mockito.any(), Mockito.any(), Mockito.anyInt());
        answer(broker::pullOffset, offsets).queryPullOffset(Mockito.any(), Mockito.any(), Mockito.anyInt());
        SubscriptionGroupManager groups = strict(SubscriptionGroupManager.class);
        answer(broker::group, groups).findSubscriptionGroupConfig(Mockito.any());
        answer(broker::updateGroup, groups).updateSubscriptionGroupConfig(Mockito.any());
        TopicConfigManager topics = strict(TopicConfigManager.class);
        answer(broker::topics, topics).getTopicConfigTable();
        answer(broker::updateTopic, topics).updateTopicConfig(Mockito.any(TopicConfig.class));
        ConsumerOrderInfoManager order = strict(ConsumerOrderInfoManager.class);
        answer(broker::isBlocked, order)
            .checkBlock(Mockito.any(), Mockito.any(), Mockito.any(), Mockito.anyInt(), Mockito.anyLong());
        BrokerController found = strict(BrokerController.class);
        answer(call -> config, found).getBrokerConfig();
        answer(call -> storeConfig, found).getMessageStoreConfig();
        answer(call -> address, found).getBrokerAddr();
        answer(call -> store, found).getMessageStore();
        answer(call -> offsets, found).getConsumerOffsetManager();
        answer(call -> groups, found).getSubscriptionGroupManager();
        answer(call -> topics, found).getTopicConfigManager();
        answer(call -> order, found).getConsumerOrderInfoManager();
        answer(call -> null, found)
            .registerBrokerAll(Mockito.anyBoolean(), Mockito.anyBoolean(), Mockito.anyBoolean());
        return found;
    }

    /** Returns the stand-in of the name server. */
    static NamesrvController nameServer() {
        NamesrvConfig config = new NamesrvConfig();
        NamesrvController found = strict(NamesrvController.class);
        answer(call -> config, found).getNamesrvConfig();
        return found;
    }

    /** Ends a test that needs the server in its own process. */
    static AssumptionViolatedException notHere(String what) {
        return new AssumptionViolatedException("needs the server in its own process: " + what);
    }

    private static <T> T strict(Class<T> kind) {
        return Mockito.mock(kind, call -> {
            if (call.getMethod().getDeclaringClass() == Object.class) {
                return Mockito.RETURNS_DEFAULTS.answer(call);
            }
            throw notHere(kind.getSimpleName() + "." + call.getMethod().getName());
        });
    }

    private static <T> T answer(Answer<?> how, T mock) {
        return Mockito.doAnswer(how).when(mock);
    }

    private Object minOffset(InvocationOnMock call) throws Exception {
        return api().getMinOffset(address, queue(call.getArgument(0), call.getArgument(1)), TIMEOUT_MS);
    }

    private Object maxOffset(InvocationOnMock call) throws Exception {
        return api().getMaxOffset(address, queue(call.getArgument(0), call.getArgument(1)), TIMEOUT_MS);
    }

    private Object consumerOffset(InvocationOnMock call) throws Exception {
        return committed(call.getArgument(0), call.getArgument(1), call.getArgument(2));
    }

    private long committed(String group, String topic, int queueId) throws Exception {
        QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(queueId);
        header.setSetZeroIfNotFound(false);
        try {
            return api().queryConsumerOffset(address, header, TIMEOUT_MS);
        } catch (MQBrokerException error) {
            if (error.getResponseCode() == ResponseCode.QUERY_NOT_FOUND) {
                return -1;
            }
            throw error;
        }
    }

    private Object pullOffset(InvocationOnMock call) throws Exception {
        String group = call.getArgument(0);
        String topic = call.getArgument(1);
        OffsetWrapper found = admin.examineConsumeStats(address, group, topic, TIMEOUT_MS).getOffsetTable()
            .get(queue(topic, call.getArgument(2)));
        return found == null ? -1 : found.getPullOffset();
    }

    /** Looking up a group makes it, as in Apache's broker. */
    private Object group(InvocationOnMock call) throws Exception {
        try {
            return api().getSubscriptionGroupConfig(address, call.getArgument(0), TIMEOUT_MS);
        } catch (MQBrokerException error) {
            if (error.getResponseCode() != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST) {
                throw error;
            }
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(call.getArgument(0));
            admin.createAndUpdateSubscriptionGroupConfig(address, config);
            return config;
        }
    }

    private Object updateGroup(InvocationOnMock call) throws Exception {
        admin.createAndUpdateSubscriptionGroupConfig(address, call.<SubscriptionGroupConfig>getArgument(0));
        return null;
    }

    private Object topics(InvocationOnMock call) throws Exception {
        return new ConcurrentHashMap<>(api().getAllTopicConfig(address, TIMEOUT_MS).getTopicConfigTable());
    }

    private Object updateTopic(InvocationOnMock call) throws Exception {
        admin.createAndUpdateTopicConfig(address, call.<TopicConfig>getArgument(0));
        return null;
    }

    /** A queue of which everything was popped in order is blocked until its group has come to the end. */
    private Object isBlocked(InvocationOnMock call) throws Exception {
        String topic = call.getArgument(1);
        String group = call.getArgument(2);
        int queueId = call.getArgument(3);
        long until = System.nanoTime() + UNBLOCKED_WITHIN_MS * 1_000_000;
        boolean blocked = true;
        while (blocked && System.nanoTime() < until) {
            blocked = committed(group, topic, queueId) < api().getMaxOffset(address, queue(topic, queueId), TIMEOUT_MS);
            if (blocked) {
                Thread.sleep(100);
            }
        }
        return blocked;
    }

    private MessageQueue queue(String topic, int queueId) {
        return new MessageQueue(topic, name, queueId);
    }

    private org.apache.rocketmq.client.impl.MQClientAPIImpl api() {
        return admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
    }
}
