import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.state.KeyValueStore;

/** The casts that building from data needs: every key and every value is an Object, windowed keys too. */
@SuppressWarnings("unchecked")
final class Handles {

    private Handles() {}

    static KStream<Object, Object> stream(Object handle) {
        return (KStream<Object, Object>) handle;
    }

    static KTable<Object, Object> table(Object handle) {
        return (KTable<Object, Object>) handle;
    }

    static GlobalKTable<Object, Object> globalTable(Object handle) {
        return (GlobalKTable<Object, Object>) handle;
    }

    static KGroupedStream<Object, Object> group(Object handle) {
        return (KGroupedStream<Object, Object>) handle;
    }

    static ProcessorSupplier<Object, Object, Void, Void> withoutOutput(
            ProcessorSupplier<Object, Object, ?, ?> supplier) {
        return (ProcessorSupplier<Object, Object, Void, Void>) supplier;
    }

    /** A versioned store passes for a key-value store in `table`. */
    static Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> keyValue(Materialized<Object, Object, ?> store) {
        return (Materialized<Object, Object, KeyValueStore<Bytes, byte[]>>) store;
    }
}
