import java.util.List;
import java.util.Map;

/** The fields of one command; an absent text is empty, an absent number has the caller's default. */
final class Command {
    private final Map<?, ?> fields;

    Command(Map<?, ?> fields) {
        this.fields = fields;
    }

    String text(String name) {
        Object value = fields.get(name);
        return value == null ? "" : value.toString();
    }

    List<?> list(String name) {
        Object value = fields.get(name);
        return value == null ? List.of() : (List<?>) value;
    }

    long number(String name, long otherwise) {
        Object value = fields.get(name);
        return value == null ? otherwise : ((Number) value).longValue();
    }
}
