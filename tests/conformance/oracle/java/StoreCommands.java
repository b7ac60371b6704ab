import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** The processor whose records are commands for a store. */
final class StoreCommands extends Behaviour {

    private StateStore store;

    StoreCommands(JsonNode reference) {
        super(reference);
    }

    @Override
    void init() {
        store = store();
    }

    @Override
    void process(Record<Object, Object> record) {
        Command command = new Command((JsonNode) record.value());
        ObjectNode answer = Values.JSON.createObjectNode();
        answer.put("do", command.name());
        answer.set("result", result(command));
        forward(record.withValue(answer));
    }

    @SuppressWarnings("unchecked")
    private JsonNode result(Command command) {
        if (store instanceof VersionedKeyValueStore<?, ?> versioned) {
            return result((VersionedKeyValueStore<Object, Object>) versioned, command);
        }
        if (store instanceof KeyValueStore<?, ?> keyValue) {
            return result((KeyValueStore<Object, Object>) keyValue, command);
        }
        if (store instanceof WindowStore<?, ?> window) {
            return result((WindowStore<Object, Object>) window, command);
        }
        return result((SessionStore<Object, Object>) store, command);
    }

    private static JsonNode result(KeyValueStore<Object, Object> store, Command command) {
        Object key = command.value("key");
        return switch (command.name()) {
            case "put" -> nothing(() -> store.put(key, command.value("value")));
            case "put_if_absent" -> Values.json(store.putIfAbsent(key, command.value("value")));
            case "put_all" -> nothing(() -> store.putAll(command.entries()));
            case "get" -> Values.json(plain(store.get(key)));
            case "delete" -> Values.json(plain(store.delete(key)));
            case "range" -> rows(store.range(command.value("from"), command.value("to")));
            case "reverse_range" -> rows(store.reverseRange(command.value("from"), command.value("to")));
            case "all" -> rows(store.all());
            case "reverse_all" -> rows(store.reverseAll());
            case "prefix" -> rows(store.prefixScan((String) command.value("prefix"), new StringSerializer()));
            default -> throw command.unknown();
        };
    }

    private static JsonNode result(WindowStore<Object, Object> store, Command command) {
        Object key = command.value("key");
        Instant from = command.instant("from");
        Instant to = command.instant("to");
        return switch (command.name()) {
            case "put" -> nothing(() -> store.put(key, command.value("value"), command.time("at")));
            case "get" -> Values.json(plain(store.fetch(key, command.time("at"))));
            case "fetch" -> times(store.fetch(key, from, to));
            case "backward_fetch" -> times(store.backwardFetch(key, from, to));
            case "fetch_keys" -> rows(store.fetch(command.value("from_key"), command.value("to_key"), from, to));
            case "fetch_all" -> rows(store.fetchAll(from, to));
            case "backward_fetch_all" -> rows(store.backwardFetchAll(from, to));
            case "all" -> rows(store.all());
            default -> throw command.unknown();
        };
    }

    private static JsonNode result(SessionStore<Object, Object> store, Command command) {
        Object key = command.value("key");
        long start = command.time("start");
        long end = command.time("end");
        long earliestEnd = command.time("earliest_end");
        long latestStart = command.time("latest_start");
        return switch (command.name()) {
            case "put" -> nothing(() -> store.put(command.session(), command.value("value")));
            case "remove" -> nothing(() -> store.remove(command.session()));
            case "get" -> Values.json(store.fetchSession(key, start, end));
            case "fetch" -> sessions(store.fetch(key));
            case "backward_fetch" -> sessions(store.backwardFetch(key));
            case "find" -> sessions(store.findSessions(key, earliestEnd, latestStart));
            case "backward_find" -> sessions(store.backwardFindSessions(key, earliestEnd, latestStart));
            default -> throw command.unknown();
        };
    }

    private static JsonNode result(VersionedKeyValueStore<Object, Object> store, Command command) {
        Object key = command.value("key");
        return switch (command.name()) {
            case "put" -> LongNode.valueOf(store.put(key, command.value("value"), command.time("at")));
            case "get" -> version(command.value("as_of") == null
                ? store.get(key)
                : store.get(key, command.time("as_of")));
            case "delete" -> version(store.delete(key, command.time("at")));
            default -> throw command.unknown();
        };
    }

    /** One command, read field by field. */
    private record Command(JsonNode json) {
        String name() {
            return json.get("do").asText();
        }

        Object value(String field) {
            return Values.of(json.get(field));
        }

        long time(String field) {
            return json.path(field).asLong();
        }

        Instant instant(String field) {
            return Instant.ofEpochMilli(time(field));
        }

        Windowed<Object> session() {
            return new Windowed<>(value("key"), new SessionWindow(time("start"), time("end")));
        }

        List<KeyValue<Object, Object>> entries() {
            List<KeyValue<Object, Object>> entries = new ArrayList<>();
            json.get("entries").forEach(
                entry -> entries.add(KeyValue.pair(Values.of(entry.get(0)), Values.of(entry.get(1)))));
            return entries;
        }

        BadCase unknown() {
            return new BadCase("unknown command " + json);
        }
    }

    private static JsonNode nothing(Runnable command) {
        command.run();
        return NullNode.instance;
    }

    private static JsonNode version(VersionedRecord<Object> found) {
        if (found == null) {
            return NullNode.instance;
        }
        ObjectNode version = Values.JSON.createObjectNode();
        version.set("value", Values.json(found.value()));
        return version.put("timestamp", found.timestamp());
    }

    private static JsonNode times(WindowStoreIterator<Object> iterator) {
        ArrayNode rows = Values.JSON.createArrayNode();
        try (iterator) {
            iterator.forEachRemaining(row -> rows.addArray().add(row.key).add(Values.json(plain(row.value))));
        }
        return rows;
    }

    /** A key, for windows their start, and a value. */
    private static JsonNode rows(KeyValueIterator<?, Object> iterator) {
        ArrayNode rows = Values.JSON.createArrayNode();
        try (iterator) {
            while (iterator.hasNext()) {
                KeyValue<?, Object> next = iterator.next();
                ArrayNode row = rows.addArray();
                if (next.key instanceof Windowed<?> windowed) {
                    row.add(Values.json(windowed.key())).add(windowed.window().start());
                } else {
                    row.add(Values.json(next.key));
                }
                row.add(Values.json(plain(next.value)));
            }
        }
        return rows;
    }

    private static JsonNode sessions(KeyValueIterator<Windowed<Object>, Object> iterator) {
        ArrayNode rows = Values.JSON.createArrayNode();
        try (iterator) {
            iterator.forEachRemaining(session -> rows.addArray()
                .add(Values.json(session.key.key()))
                .add(session.key.window().start())
                .add(session.key.window().end())
                .add(Values.json(session.value)));
        }
        return rows;
    }
}
