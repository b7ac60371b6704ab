import com.fasterxml.jackson.databind.JsonNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Processors with a store. */
final class StoreBehaviours {

    private StoreBehaviours() {}

    static Behaviour of(JsonNode reference) {
        return switch (reference.get(0).asText()) {
            case "dedup" -> new Dedup(reference);
            case "running_total" -> new RunningTotal(reference);
            case "velocity" -> new Velocity(reference);
            case "buffer_until" -> new BufferUntil(reference);
            case "put_into" -> new PutInto(reference);
            case "lookup_in" -> new LookupIn(reference);
            default -> throw new BadCase("unknown processor " + reference);
        };
    }

    private abstract static class WithStore extends Behaviour {
        protected KeyValueStore<Object, Object> store;

        WithStore(JsonNode reference) {
            super(reference);
        }

        @Override
        void init() {
            store = store();
            if (options.has("interval_ms")) {
                schedule(this::punctuate);
            }
        }

        void punctuate(long time) {}

        /** Read to its end before anything is changed. */
        final List<KeyValue<Object, Object>> entries() {
            List<KeyValue<Object, Object>> entries = new ArrayList<>();
            try (KeyValueIterator<Object, Object> all = store.all()) {
                all.forEachRemaining(entries::add);
            }
            return entries;
        }
    }

    private static final class Dedup extends WithStore {
        Dedup(JsonNode reference) {
            super(reference);
        }

        @Override
        void process(Record<Object, Object> record) {
            if (store.get(record.key()) == null) {
                store.put(record.key(), record.timestamp());
                forward(record);
            }
        }

        @Override
        void punctuate(long time) {
            long oldest = time - options.get("ttl_ms").asLong();
            for (KeyValue<Object, Object> entry : entries()) {
                if ((Long) entry.value <= oldest) {
                    store.delete(entry.key);
                }
            }
        }
    }

    private static final class RunningTotal extends WithStore {
        RunningTotal(JsonNode reference) {
            super(reference);
        }

        @Override
        void process(Record<Object, Object> record) {
            Object total = Values.sum(store.get(record.key()), record.value());
            store.put(record.key(), total);
            forward(record.withValue(total));
        }

        @Override
        void punctuate(long time) {
            entries().forEach(entry -> store.delete(entry.key));
        }
    }

    private static final class Velocity extends Behaviour {
        private WindowStore<Object, Object> counts;

        Velocity(JsonNode reference) {
            super(reference);
        }

        @Override
        void init() {
            counts = store();
        }

        @Override
        void process(Record<Object, Object> record) {
            Object key = record.key();
            long now = record.timestamp();
            Object before = plain(counts.fetch(key, now));
            counts.put(key, before == null ? 1L : (Long) before + 1, now);
            long sum = 0;
            Instant from = Instant.ofEpochMilli(Math.max(0, now - options.get("window_ms").asLong()));
            try (WindowStoreIterator<Object> recent = counts.fetch(key, from, Instant.ofEpochMilli(now))) {
                while (recent.hasNext()) {
                    sum += (Long) plain(recent.next().value);
                }
            }
            if (sum > options.get("limit").asLong()) {
                forward(record.withValue(sum));
            }
        }
    }

    private static final class BufferUntil extends WithStore {
        BufferUntil(JsonNode reference) {
            super(reference);
        }

        @Override
        void process(Record<Object, Object> record) {
            store.put(record.key(), record.value());
        }

        @Override
        void punctuate(long time) {
            for (KeyValue<Object, Object> entry : entries()) {
                store.delete(entry.key);
                forwardNew(entry.key, entry.value, time);
            }
        }
    }

    private static final class PutInto extends WithStore {
        PutInto(JsonNode reference) {
            super(reference);
        }

        @Override
        void process(Record<Object, Object> record) {
            store.put(record.key(), record.value());
        }
    }

    private static final class LookupIn extends WithStore {
        LookupIn(JsonNode reference) {
            super(reference);
        }

        @Override
        void process(Record<Object, Object> record) {
            String found = Values.text(plain(store.get(record.key())));
            forward(record.withValue(Values.text(record.value()) + "|" + found));
        }
    }
}
