import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;

/**
 * Serdes that keep the type of a value: what a topology writes is marked, text without the mark is what a test wrote.
 *
 * <p>A key is its text, so that its bytes have Kafka's order; the times of a windowed key are behind it.
 */
final class CaseSerdes {

    static final Serde<Object> KEYS = Serdes.serdeFrom((topic, key) -> keyBytes(key), (topic, data) -> key(data));
    /** What a topology writes. */
    static final Serde<Object> VALUES = values("string");

    private static final byte[] TYPED = "\0typed\0".getBytes(StandardCharsets.UTF_8);
    private static final byte[] WINDOWED = "\0windowed".getBytes(StandardCharsets.UTF_8);
    private static final int TIMES = 2 * Long.BYTES;

    /** The default serdes, which Kafka Streams makes by class. */
    public static final class Keys extends Serdes.WrapperSerde<Object> {
        public Keys() {
            super(KEYS.serializer(), KEYS.deserializer());
        }
    }

    public static final class AnyValues extends Serdes.WrapperSerde<Object> {
        public AnyValues() {
            super(VALUES.serializer(), VALUES.deserializer());
        }
    }

    private CaseSerdes() {}

    /** Values of a source: unmarked text is of that type. */
    static Serde<Object> values(String type) {
        return Serdes.serdeFrom((topic, value) -> valueBytes(value), (topic, data) -> value(data, type));
    }

    private static byte[] valueBytes(Object value) {
        if (value == null) {
            return null;
        }
        String type = value instanceof JsonNode ? "json" : value.getClass().getSimpleName().toLowerCase();
        byte[] text = (type.charAt(0) + value.toString()).getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(TYPED.length + text.length).put(TYPED).put(text).array();
    }

    private static Object value(byte[] data, String type) {
        if (data == null) {
            return null;
        }
        if (data.length < TYPED.length || !Arrays.equals(data, 0, TYPED.length, TYPED, 0, TYPED.length)) {
            return parsed(new String(data, StandardCharsets.UTF_8), type);
        }
        String text = new String(data, TYPED.length + 1, data.length - TYPED.length - 1, StandardCharsets.UTF_8);
        return switch (data[TYPED.length]) {
            case 's' -> text;
            case 'l' -> Long.parseLong(text);
            case 'd' -> Double.parseDouble(text);
            default -> parsed(text, "json");
        };
    }

    private static Object parsed(String text, String type) {
        try {
            return switch (type) {
                case "string" -> text;
                case "long" -> Long.parseLong(text);
                case "double" -> Double.parseDouble(text);
                case "json" -> tree(text);
                default -> throw new BadCase("unknown type " + type);
            };
        } catch (NumberFormatException | JsonProcessingException error) {
            throw new SerializationException("not a " + type + ": " + text, error);
        }
    }

    private static Object tree(String text) throws JsonProcessingException {
        JsonNode tree = Values.JSON.readTree(text);
        if (tree.isMissingNode()) {
            throw new NumberFormatException("empty");
        }
        return Values.of(tree);
    }

    private static byte[] keyBytes(Object key) {
        if (key == null) {
            return null;
        }
        if (key instanceof Windowed<?> windowed) {
            byte[] inner = keyBytes(windowed.key());
            return ByteBuffer.allocate(inner.length + TIMES + WINDOWED.length)
                .put(inner)
                .putLong(windowed.window().start())
                .putLong(windowed.window().end())
                .put(WINDOWED)
                .array();
        }
        return ((String) key).getBytes(StandardCharsets.UTF_8);
    }

    private static Object key(byte[] data) {
        if (data == null) {
            return null;
        }
        int inner = data.length - WINDOWED.length - TIMES;
        if (inner < 0 || !Arrays.equals(data, inner + TIMES, data.length, WINDOWED, 0, WINDOWED.length)) {
            return new String(data, StandardCharsets.UTF_8);
        }
        ByteBuffer times = ByteBuffer.wrap(data, inner, TIMES);
        return new Windowed<>(key(Arrays.copyOf(data, inner)), new SessionWindow(times.getLong(), times.getLong()));
    }
}
