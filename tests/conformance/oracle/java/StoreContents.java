import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;

/** What the named stores of a case hold after its last step (SPEC section 8). */
final class StoreContents {

    private final ArrayNode rows = Values.JSON.createArrayNode();

    private StoreContents() {}

    /**
     * Reads the stores.
     *
     * @param keys keys that there may be: a versioned store cannot list its own
     */
    static ObjectNode of(TopologyTestDriver driver, Node theCase, Set<Object> keys) {
        Set<String> names = new TreeSet<>();
        theCase.node("spec").nodes("nodes").forEach(node -> names.addAll(node.texts("store")));
        theCase.node("spec").nodes("stores").forEach(store -> names.add(store.text("name")));
        Set<Long> times = new TreeSet<>();
        for (Node input : theCase.nodes("inputs")) {
            if (input.has("timestamp")) {
                times.add(input.number("timestamp"));
            }
        }
        ObjectNode contents = Values.JSON.createObjectNode();
        for (String name : names) {
            StateStore store = driver.getAllStateStores().get(name);
            if (store != null) {
                contents.set(name, content(store, keys, times));
            }
        }
        return contents;
    }

    @SuppressWarnings("unchecked")
    private static ArrayNode content(StateStore store, Set<Object> keys, Set<Long> times) {
        StoreContents contents = new StoreContents();
        if (store instanceof VersionedKeyValueStore<?, ?> versioned) {
            contents.addVersions((VersionedKeyValueStore<Object, Object>) versioned, keys, times);
        } else if (store instanceof KeyValueStore<?, ?> keyValue) {
            contents.addAll(keyValue.all());
        } else if (store instanceof WindowStore<?, ?> window) {
            contents.addAll(window.all());
        } else if (store instanceof SessionStore<?, ?> session) {
            // From the first to the last key; the store leaves out what is older than its retention.
            contents.addAll(session.fetch(null, null));
        } else {
            throw new BadCase("unknown store " + store);
        }
        return contents.rows;
    }

    private void addAll(KeyValueIterator<?, ?> entries) {
        try (entries) {
            while (entries.hasNext()) {
                KeyValue<?, ?> entry = entries.next();
                ObjectNode row = rows.addObject();
                row.set("key", Values.json(entry.key));
                if (entry.value instanceof ValueAndTimestamp<?> stamped) {
                    row.set("value", Values.json(stamped.value()));
                    row.put("timestamp", stamped.timestamp());
                } else {
                    row.set("value", Values.json(entry.value));
                }
            }
        }
    }

    private void addVersions(VersionedKeyValueStore<Object, Object> store, Set<Object> keys, Set<Long> times) {
        for (Object key : keys) {
            ObjectNode row = Values.JSON.createObjectNode();
            row.set("key", Values.json(key));
            VersionedRecord<Object> latest = store.get(key);
            row.set("latest", latest == null ? null : version(latest));
            ArrayNode asOf = row.putArray("as_of");
            for (long time : times) {
                VersionedRecord<Object> found = store.get(key, time);
                if (found != null) {
                    asOf.addArray().add(time).add(version(found));
                }
            }
            if (latest != null || !asOf.isEmpty()) {
                rows.add(row);
            }
        }
    }

    private static ArrayNode version(VersionedRecord<Object> version) {
        return Values.JSON.createArrayNode().add(Values.json(version.value())).add(version.timestamp());
    }
}
