import com.aliyun.mns.client.CloudAccount;
import com.aliyun.mns.client.CloudPullTopic;
import com.aliyun.mns.client.CloudQueue;
import com.aliyun.mns.client.CloudTopic;
import com.aliyun.mns.client.MNSClient;
import com.aliyun.mns.client.TransactionQueue;
import com.aliyun.mns.common.BatchDeleteException;
import com.aliyun.mns.common.BatchSendException;
import com.aliyun.mns.common.ServiceException;
import com.aliyun.mns.model.AccountAttributes;
import com.aliyun.mns.model.Message;
import com.aliyun.mns.model.PagingListResult;
import com.aliyun.mns.model.QueueMeta;
import com.aliyun.mns.model.RawTopicMessage;
import com.aliyun.mns.model.SubscriptionMeta;
import com.aliyun.mns.model.TopicMessage;
import com.aliyun.mns.model.TopicMeta;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Vector;

/**
 * MNS's client for Java under remote control: the same commands as in driver.py, and its transaction queues.
 *
 * <p>A local transaction is told how it ends by the command: commit, rollback, throw, or halt, which kills this process
 * in it. The checker answers as `check` of tx_open says, and each of its questions is an event.
 */
public class Mns {
  private static PrintStream answers;
  private final MNSClient client;
  private final Map<String, TransactionQueue> transactions = new HashMap<>();

  private Mns(String url, String user, String secret) {
    client = new CloudAccount(user, secret, url).getMNSClient();
  }

  private static synchronized void emit(JsonObject line) {
    answers.println(line);
    answers.flush();
  }

  private static String text(JsonObject command, String name, String other) {
    return command.has(name) ? command.get(name).getAsString() : other;
  }

  private static int number(JsonObject command, String name, int other) {
    return command.has(name) ? command.get(name).getAsInt() : other;
  }

  private static JsonObject one(String name, String value) {
    JsonObject made = new JsonObject();
    made.addProperty(name, value);
    return made;
  }

  private static QueueMeta queueMeta(JsonObject command) {
    QueueMeta meta = new QueueMeta();
    meta.setQueueName(command.get("queue").getAsString());
    if (!command.has("attributes")) {
      return meta;
    }
    for (Map.Entry<String, JsonElement> each : command.getAsJsonObject("attributes").entrySet()) {
      JsonElement value = each.getValue();
      switch (each.getKey()) {
        case "VisibilityTimeout": meta.setVisibilityTimeout(value.getAsLong()); break;
        case "MaximumMessageSize": meta.setMaxMessageSize(value.getAsLong()); break;
        case "MessageRetentionPeriod": meta.setMessageRetentionPeriod(value.getAsLong()); break;
        case "DelaySeconds": meta.setDelaySeconds(value.getAsLong()); break;
        case "PollingWaitSeconds": meta.setPollingWaitSeconds(value.getAsInt()); break;
        default: meta.setLoggingEnabled(value.getAsBoolean());
      }
    }
    return meta;
  }

  private static TopicMeta topicMeta(JsonObject command) {
    TopicMeta meta = new TopicMeta();
    meta.setTopicName(command.get("topic").getAsString());
    if (command.has("attributes")) {
      meta.setMaxMessageSize(command.getAsJsonObject("attributes").get("MaximumMessageSize").getAsLong());
    }
    return meta;
  }

  private static Message message(JsonObject command, String body) {
    Message made = new Message();
    boolean raw = command.has("raw") && command.get("raw").getAsBoolean();
    made.setMessageBody(body, raw ? Message.MessageBodyType.RAW_STRING : Message.MessageBodyType.BASE64);
    if (command.has("delay_s")) {
      made.setDelaySeconds(command.get("delay_s").getAsInt());
    }
    if (command.has("priority")) {
      made.setPriority(command.get("priority").getAsInt());
    }
    return made;
  }

  private static JsonObject described(JsonObject command, Message found) throws Exception {
    boolean raw = command.has("raw") && command.get("raw").getAsBoolean();
    JsonObject made = sent(found);
    made.addProperty("body", raw ? found.getMessageBodyAsRawString() : found.getMessageBodyAsString("UTF-8"));
    made.addProperty("count", found.getDequeueCount());
    made.addProperty("priority", found.getPriority());
    made.addProperty("enqueuedMs", found.getEnqueueTime().getTime());
    made.addProperty("visibleMs", found.getNextVisibleTime() == null ? 0 : found.getNextVisibleTime().getTime());
    made.addProperty("firstMs", found.getFirstDequeueTime().getTime());
    return made;
  }

  private static JsonObject sent(Message found) {
    JsonObject made = one("messageId", found.getMessageId());
    made.addProperty("md5", found.getMessageBodyMD5());
    made.addProperty("handle", found.getReceiptHandle() == null ? "" : found.getReceiptHandle());
    return made;
  }

  private static JsonObject all(JsonObject command, List<Message> found, boolean isSent) throws Exception {
    JsonArray rows = new JsonArray();
    for (Message each : present(found)) {
      rows.add(isSent ? sent(each) : described(command, each));
    }
    JsonObject made = new JsonObject();
    made.add("messages", rows);
    return made;
  }

  /** The client makes null of "there is no message". */
  private static <T> T present(T found) {
    if (found == null) {
      throw new ServiceException("no message", null, "MessageNotExist", "", "");
    }
    return found;
  }

  private static List<String> texts(JsonObject command, String name) {
    List<String> found = new ArrayList<>();
    for (JsonElement each : command.getAsJsonArray(name)) {
      found.add(each.getAsString());
    }
    return found;
  }

  private static JsonObject page(PagingListResult<String> found) {
    JsonArray urls = new JsonArray();
    if (found != null && found.getResult() != null) {
      for (String each : found.getResult()) {
        urls.add(new JsonPrimitive(each));
      }
    }
    JsonObject made = new JsonObject();
    made.add("urls", urls);
    made.addProperty("marker", found == null || found.getMarker() == null ? "" : found.getMarker());
    return made;
  }

  private JsonObject queueCall(JsonObject command) throws Exception {
    CloudQueue queue = client.getQueueRef(command.get("queue").getAsString());
    int wait = number(command, "wait_s", -1);
    switch (command.get("op").getAsString()) {
      case "create_queue": return one("url", queue.create(queueMeta(command)));
      case "set_queue": queue.setAttributes(queueMeta(command)); return new JsonObject();
      case "get_queue": return attributes(queue.getAttributes());
      case "delete_queue": queue.delete(); return new JsonObject();
      case "send": return sent(queue.putMessage(message(command, command.get("body").getAsString())));
      case "send_many": {
        List<Message> made = new ArrayList<>();
        for (String body : texts(command, "bodies")) {
          made.add(message(command, body));
        }
        return all(command, queue.batchPutMessage(made), true);
      }
      case "receive": return described(command, present(wait < 0 ? queue.popMessage() : queue.popMessage(wait)));
      case "receive_many": {
        int count = command.get("count").getAsInt();
        return all(command, wait < 0 ? queue.batchPopMessage(count) : queue.batchPopMessage(count, wait), false);
      }
      case "peek": return described(command, present(queue.peekMessage()));
      case "peek_many": return all(command, queue.batchPeekMessage(command.get("count").getAsInt()), false);
      case "delete": queue.deleteMessage(command.get("handle").getAsString()); return new JsonObject();
      case "delete_many": queue.batchDeleteMessage(texts(command, "handles")); return new JsonObject();
      default: {
        Message found = queue.changeMessageVisibility(command.get("handle").getAsString(), command.get("seconds").getAsInt());
        JsonObject made = one("handle", found.getReceiptHandle());
        made.addProperty("visibleMs", found.getNextVisibleTime().getTime());
        return made;
      }
    }
  }

  private static JsonObject attributes(QueueMeta meta) {
    JsonObject values = one("QueueName", meta.getQueueName());
    values.addProperty("VisibilityTimeout", meta.getVisibilityTimeout());
    values.addProperty("MaximumMessageSize", meta.getMaxMessageSize());
    values.addProperty("MessageRetentionPeriod", meta.getMessageRetentionPeriod());
    values.addProperty("DelaySeconds", meta.getDelaySeconds());
    values.addProperty("PollingWaitSeconds", meta.getPollingWaitSeconds());
    values.addProperty("LoggingEnabled", meta.isLoggingEnabled());
    values.addProperty("ActiveMessages", meta.getActiveMessages());
    values.addProperty("InactiveMessages", meta.getInactiveMessages());
    values.addProperty("DelayMessages", meta.getDelayMessages());
    values.addProperty("CreateTime", meta.getCreateTime().getTime() / 1000);
    JsonObject made = new JsonObject();
    made.add("attributes", values);
    return made;
  }

  private JsonObject topicCall(JsonObject command) throws Exception {
    CloudTopic topic = client.getTopicRef(command.get("topic").getAsString());
    String name = text(command, "subscription", "");
    switch (command.get("op").getAsString()) {
      case "create_topic": return one("url", client.createTopic(topicMeta(command)).getTopicURL());
      case "set_topic": topic.setAttribute(topicMeta(command)); return new JsonObject();
      case "get_topic": {
        TopicMeta found = topic.getAttribute();
        JsonObject values = one("TopicName", found.getTopicName());
        values.addProperty("MaximumMessageSize", found.getMaxMessageSize());
        JsonObject made = new JsonObject();
        made.add("attributes", values);
        return made;
      }
      case "delete_topic": topic.delete(); return new JsonObject();
      case "publish": {
        RawTopicMessage made = new RawTopicMessage();
        made.setBaseMessageBody(command.get("body").getAsString());
        if (command.has("tag")) {
          made.setMessageTag(command.get("tag").getAsString());
        }
        TopicMessage found = topic.publishMessage(made);
        JsonObject answer = one("messageId", found.getMessageId());
        answer.addProperty("md5", found.getMessageBodyMD5());
        return answer;
      }
      case "subscribe": {
        SubscriptionMeta meta = new SubscriptionMeta();
        meta.setSubscriptionName(name);
        meta.setEndpoint(topic.generateQueueEndpoint(command.get("queue").getAsString()));
        meta.setNotifyStrategy(SubscriptionMeta.NotifyStrategy.EXPONENTIAL_DECAY_RETRY);
        meta.setNotifyContentFormat(SubscriptionMeta.NotifyContentFormat.valueOf(text(command, "format", "SIMPLIFIED")));
        if (command.has("tag")) {
          meta.setFilterTag(command.get("tag").getAsString());
        }
        return one("url", topic.subscribe(meta));
      }
      case "set_subscription": {
        SubscriptionMeta meta = new SubscriptionMeta();
        meta.setSubscriptionName(name);
        meta.setNotifyStrategy(SubscriptionMeta.NotifyStrategy.valueOf(command.get("strategy").getAsString()));
        topic.setSubscriptionAttr(meta);
        return new JsonObject();
      }
      case "get_subscription": {
        SubscriptionMeta found = topic.getSubscriptionAttr(name);
        JsonObject made = one("endpoint", found.getEndpoint());
        made.addProperty("strategy", found.getNotifyStrategy().name());
        made.addProperty("format", found.getNotifyContentFormat().name());
        return made;
      }
      case "list_subscriptions": return page(topic.listSubscriptionUrls("", "", 100));
      case "unsubscribe": topic.unsubscribe(name); return new JsonObject();
      default: {
        CloudPullTopic pulled = client.createPullTopic(topicMeta(command), new Vector<>(texts(command, "queues")), true, new QueueMeta());
        RawTopicMessage made = new RawTopicMessage();
        made.setBaseMessageBody(command.get("body").getAsString());
        return one("messageId", pulled.publishMessage(made).getMessageId());
      }
    }
  }

  private JsonObject transactionCall(JsonObject command) throws Exception {
    String name = command.get("queue").getAsString();
    if (command.get("op").getAsString().equals("tx_open")) {
      QueueMeta meta = queueMeta(command);
      String verdict = text(command, "check", "");
      TransactionQueue made = verdict.isEmpty()
          ? client.createTransQueue(meta)
          : client.createTransQueue(meta, asked -> {
              JsonObject line = one("event", "checked");
              line.addProperty("queue", name);
              line.addProperty("handle", asked.getReceiptHandle());
              emit(line);
              return verdict.equals("commit");
            });
      made.setTransactionTimeoutInSecond(number(command, "log_delay_s", 600));
      made.setCheckIntervalInMillsecond(500);
      transactions.put(name, made);
      return new JsonObject();
    }
    TransactionQueue queue = transactions.get(name);
    switch (command.get("op").getAsString()) {
      case "tx_send": {
        String end = command.get("end").getAsString();
        Message found = queue.sendTransMessage(message(command, command.get("body").getAsString()), prepared -> {
          JsonObject line = one("event", "prepared");
          line.addProperty("handle", prepared.getReceiptHandle());
          emit(line);
          if (end.equals("halt")) {
            Runtime.getRuntime().halt(1);
          }
          if (end.equals("throw")) {
            throw new IllegalStateException("as told");
          }
          return end.equals("commit");
        });
        return found == null ? new JsonObject() : sent(found);
      }
      case "tx_prepare": return sent(queue.sendPrepareMessage(message(command, command.get("body").getAsString())));
      case "tx_commit": queue.commitMessage(command.get("handle").getAsString()); return new JsonObject();
      case "tx_rollback": queue.rollbackMessage(command.get("handle").getAsString()); return new JsonObject();
      default: queue.delete(true); transactions.remove(name); return new JsonObject();
    }
  }

  private JsonObject run(JsonObject command) throws Exception {
    String op = command.get("op").getAsString();
    if (op.startsWith("tx_")) {
      return transactionCall(command);
    }
    if (command.has("topic")) {
      return topicCall(command);
    }
    if (command.has("queue")) {
      return queueCall(command);
    }
    switch (op) {
      case "list_queues": return page(client.listQueueURL(text(command, "prefix", ""), text(command, "marker", ""), number(command, "count", 1000)));
      case "list_topics": return page(client.listTopicURL(text(command, "prefix", ""), text(command, "marker", ""), number(command, "count", 1000)));
      case "set_account": {
        AccountAttributes made = new AccountAttributes();
        made.setLoggingBucket(command.get("bucket").getAsString());
        client.SetAccountAttributes(made);
        return new JsonObject();
      }
      default: {
        String bucket = client.GetAccountAttributes().getLoggingBucket();
        return one("bucket", bucket == null ? "" : bucket);
      }
    }
  }

  private static String codeOf(Throwable error) {
    if (error instanceof BatchDeleteException) {
      return ((BatchDeleteException) error).getErrorMessages().values().iterator().next().getErrorCode();
    }
    if (error instanceof BatchSendException) {
      for (Message each : ((BatchSendException) error).getMessages()) {
        if (each.isErrorMessage()) {
          return each.getErrorMessageDetail().getErrorCode();
        }
      }
    }
    boolean isAnswer = error instanceof ServiceException;
    return isAnswer ? ((ServiceException) error).getErrorCode() : error.getClass().getSimpleName();
  }

  public static void main(String[] args) throws Exception {
    answers = new PrintStream(System.out, true, "UTF-8");
    Mns driver = new Mns(args[0], args[1], args[2]);
    emit(one("event", "ready"));
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      JsonObject command = new JsonParser().parse(line).getAsJsonObject();
      if (command.get("op").getAsString().equals("quit")) {
        break;
      }
      new Thread(() -> {
        JsonObject answer;
        try {
          answer = driver.run(command);
          answer.addProperty("ok", true);
        } catch (Throwable error) {
          answer = one("error", codeOf(error));
          answer.addProperty("message", String.valueOf(error.getMessage()));
          answer.addProperty("ok", false);
        }
        answer.addProperty("reply", command.get("reply").getAsInt());
        emit(answer);
      }).start();
    }
    Runtime.getRuntime().halt(0);
  }
}
