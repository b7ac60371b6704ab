import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.function.LongConsumer;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ProcessingContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/** What a processor of the cases does (SPEC section 6), no matter whether it may change the key. */
abstract class Behaviour {

    /** Where records go; a child of null stands for all children. */
    interface Output {
        void forward(Record<Object, Object> record, String child);
    }

    /** The second element of the reference: its options, or its only argument. */
    protected final JsonNode options;

    protected ProcessingContext context;
    private Output output;

    Behaviour(JsonNode reference) {
        options = reference.path(1);
    }

    final void start(ProcessingContext context, Output output) {
        this.context = context;
        this.output = output;
        init();
    }

    /** Once, before the first record. */
    void init() {}

    abstract void process(Record<Object, Object> record);

    final void forward(Record<Object, Object> record) {
        output.forward(record, null);
    }

    final void forward(Record<Object, Object> record, String child) {
        output.forward(record, child);
    }

    /** A record that no input record stands behind. */
    final void forwardNew(Object key, Object value, long timestamp) {
        forward(new Record<>(key, value, timestamp, new RecordHeaders()));
    }

    /** The connected store; the caller knows its type. */
    @SuppressWarnings("unchecked")
    final <S extends StateStore> S store() {
        return (S) context.getStateStore(options.get("store").asText());
    }

    /** By the options `interval_ms`, `type` and `start_ms`. */
    final Cancellable schedule(LongConsumer punctuator) {
        boolean byWallClock = options.path("type").asText().equals("wall_clock");
        return schedule(byWallClock ? PunctuationType.WALL_CLOCK_TIME : PunctuationType.STREAM_TIME, punctuator);
    }

    final Cancellable schedule(PunctuationType type, LongConsumer punctuator) {
        Duration interval = Duration.ofMillis(options.get("interval_ms").asLong());
        if (!options.has("start_ms")) {
            return context.schedule(interval, type, punctuator::accept);
        }
        Instant start = Instant.ofEpochMilli(options.get("start_ms").asLong());
        return context.schedule(start, interval, type, punctuator::accept);
    }

    /** The stores of tables keep a timestamp with each value. */
    static Object plain(Object value) {
        return value instanceof ValueAndTimestamp<?> stamped ? stamped.value() : value;
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
