import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/** What a command wants to be filtered by, and what RocketMQ's own filter makes of expressions. */
final class Filters {
    private Filters() {
    }

    static MessageSelector selector(Command c) {
        if (!c.text("sql").isEmpty()) {
            return MessageSelector.bySql(c.text("sql"));
        }
        return MessageSelector.byTag(c.text("expression").isEmpty() ? "*" : c.text("expression"));
    }

    /** "refused", or for each of the messages, which are maps of properties: true, false, null or raises. */
    static void judge(Command c, Map<String, Object> answer) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(c.text("sql"));
        } catch (Throwable e) {
            answer.put("outcomes", "refused");
            return;
        }
        List<String> outcomes = new ArrayList<>();
        for (Object message : c.list("messages")) {
            try {
                outcomes.add(String.valueOf(expression.evaluate(new Properties((Map<?, ?>) message))));
            } catch (Throwable e) {
                outcomes.add("raises");
            }
        }
        answer.put("outcomes", outcomes);
    }

    static void bloom(Command c, Map<String, Object> answer) {
        List<Integer> positions = new ArrayList<>();
        for (int position : BloomFilter.createByFn(20, 32).calcBitPositions(c.text("group") + "#" + c.text("topic"))) {
            positions.add(position);
        }
        answer.put("positions", positions);
    }

    private static final class Properties implements EvaluationContext {
        private final Map<?, ?> pairs;

        Properties(Map<?, ?> pairs) {
            this.pairs = pairs;
        }

        @Override
        public Object get(String name) {
            return pairs.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            throw new UnsupportedOperationException();
        }
    }
}
