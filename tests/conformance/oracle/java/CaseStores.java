import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** Stores as a case describes them. */
final class CaseStores {

    private CaseStores() {}

    /** A store for processors. */
    static StoreBuilder<?> builder(Node store) {
        String name = store.text("name");
        return switch (store.text("type")) {
            case "kv" -> keyValue(name);
            case "lru" -> Stores.keyValueStoreBuilder(
                Stores.lruMap(name, (int) store.number("max_entries")), CaseSerdes.KEYS, CaseSerdes.VALUES);
            case "window" -> Stores.windowStoreBuilder(
                Stores.persistentWindowStore(
                    name,
                    store.duration("retention_ms"),
                    store.duration("window_size_ms"),
                    store.json().path("retain_duplicates").asBoolean()),
                CaseSerdes.KEYS,
                CaseSerdes.VALUES);
            case "session" -> Stores.sessionStoreBuilder(
                Stores.persistentSessionStore(name, store.duration("retention_ms")),
                CaseSerdes.KEYS,
                CaseSerdes.VALUES);
            case "versioned" -> Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore(name, store.duration("history_ms")),
                CaseSerdes.KEYS,
                CaseSerdes.VALUES);
            default -> throw new BadCase("unknown store " + store);
        };
    }

    static StoreBuilder<KeyValueStore<Object, Object>> keyValue(String name) {
        return Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(name), CaseSerdes.KEYS, CaseSerdes.VALUES);
    }

    static boolean isNamed(Node node) {
        return node.has("store");
    }

    /** What a node says about its store; the caller knows the kind. */
    static <S extends StateStore> Materialized<Object, Object, S> materialized(Node node) {
        Materialized<Object, Object, S> store = isNamed(node)
            ? Materialized.as(node.text("store"))
            : Materialized.with(CaseSerdes.KEYS, CaseSerdes.VALUES);
        store = store.withKeySerde(CaseSerdes.KEYS).withValueSerde(CaseSerdes.VALUES);
        if (node.has("retention_ms")) {
            store = store.withRetention(node.duration("retention_ms"));
        }
        if (node.has("caching")) {
            store = node.get("caching").asBoolean() ? store.withCachingEnabled() : store.withCachingDisabled();
        }
        return store;
    }

    /** A source's store, whose values are of the source's type. */
    static Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> ofSource(Node node) {
        return Materialized.<Object, Object, KeyValueStore<Bytes, byte[]>>as(node.text("store"))
            .withKeySerde(CaseSerdes.KEYS)
            .withValueSerde(CaseSerdes.values(node.text("value_type")));
    }
}
