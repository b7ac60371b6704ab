import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.node.DoubleNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.util.Objects;
import org.apache.kafka.streams.kstream.Windowed;

/** Values of the cases (SPEC section 2): null, String, Long, Double or a JSON tree; keys may also be windowed. */
final class Values {

    static final ObjectMapper JSON =
        new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);

    private Values() {}

    /** A scalar as Java has it, a tree as it is. */
    static Object of(JsonNode json) {
        if (json == null || json.isNull() || json.isMissingNode()) {
            return null;
        }
        if (json.isTextual()) {
            return json.asText();
        }
        if (json.isIntegralNumber()) {
            return json.asLong();
        }
        return json.isFloatingPointNumber() ? (Object) json.asDouble() : json;
    }

    /** The opposite of {@link #of}; a windowed key becomes an object. */
    static JsonNode json(Object value) {
        if (value == null) {
            return NullNode.instance;
        }
        if (value instanceof JsonNode tree) {
            return tree;
        }
        if (value instanceof String text) {
            return TextNode.valueOf(text);
        }
        if (value instanceof Long number) {
            return LongNode.valueOf(number);
        }
        if (value instanceof Double number) {
            return DoubleNode.valueOf(number);
        }
        if (value instanceof Windowed<?> windowed) {
            ObjectNode key = JSON.createObjectNode();
            key.set("key", json(windowed.key()));
            return key.put("start", windowed.window().start()).put("end", windowed.window().end());
        }
        throw new IllegalArgumentException("not a value of the cases: " + value.getClass());
    }

    static String text(Object value) {
        if (value instanceof Windowed<?> windowed) {
            return text(windowed.key()) + "@" + windowed.window().start() + "/" + windowed.window().end();
        }
        if (value instanceof JsonNode tree) {
            try {
                // Only maps are written with sorted keys, so the tree becomes one first.
                return JSON.writeValueAsString(JSON.treeToValue(tree, Object.class));
            } catch (JsonProcessingException error) {
                throw new IllegalStateException(error);
            }
        }
        return String.valueOf(value);
    }

    static boolean isGreater(Object left, Object right) {
        if (left instanceof Long x && right instanceof Long y) {
            return x > y;
        }
        if (left instanceof Number x && right instanceof Number y) {
            return x.doubleValue() > y.doubleValue();
        }
        return text(left).compareTo(text(right)) > 0;
    }

    static boolean areEqual(Object left, Object right) {
        if (left instanceof Number x && right instanceof Number y && !x.getClass().equals(y.getClass())) {
            return x.doubleValue() == y.doubleValue();
        }
        return Objects.equals(left, right);
    }

    static Object field(Object value, String name) {
        return value instanceof ObjectNode tree ? of(tree.get(name)) : null;
    }

    static Number number(Object value) {
        if (value instanceof Number number) {
            return number;
        }
        throw new ClassCastException("not a number: " + text(value));
    }

    /** An absent operand counts as 0 of the other's type. */
    static Object sum(Object left, Object right) {
        if (left == null || right == null) {
            return left == null && right == null ? (Object) 0L : number(left == null ? right : left);
        }
        if (number(left) instanceof Long x && number(right) instanceof Long y) {
            return x + y;
        }
        return number(left).doubleValue() + number(right).doubleValue();
    }

    static Object difference(Object left, Object right) {
        Number from = left == null ? 0L : number(left);
        Number what = right == null ? 0L : number(right);
        if (from instanceof Long x && what instanceof Long y) {
            return x - y;
        }
        return from.doubleValue() - what.doubleValue();
    }

    static Object product(Object left, Object right) {
        if (number(left) instanceof Long x && number(right) instanceof Long y) {
            return x * y;
        }
        return number(left).doubleValue() * number(right).doubleValue();
    }

    /** With the sign of the divisor. */
    static Object remainder(Object value, Object divisor) {
        if (number(value) instanceof Long x && number(divisor) instanceof Long y) {
            return Math.floorMod(x, y);
        }
        return number(value).doubleValue() % number(divisor).doubleValue();
    }

    /** The result, unless the value is the one to fail on. */
    static <T> T unless(Object value, Object forbidden, T result) {
        if (value != null && areEqual(value, forbidden)) {
            throw new IllegalStateException("failed on " + text(value));
        }
        return result;
    }
}
