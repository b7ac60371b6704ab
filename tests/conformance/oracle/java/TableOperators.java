import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKeySupplier;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.state.KeyValueStore;

/** Operators on one table. */
final class TableOperators {

    private TableOperators() {}

    static Object add(Node node, KTable<Object, Object> table) {
        boolean stored = CaseStores.isNamed(node);
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store = CaseStores.materialized(node);
        return switch (node.operator()) {
            case "filter" -> {
                Predicate<Object, Object> predicate = Functions.predicate(node.get("predicate"));
                yield stored ? table.filter(predicate, store) : table.filter(predicate);
            }
            case "filter_not" -> {
                Predicate<Object, Object> predicate = Functions.predicate(node.get("predicate"));
                yield stored ? table.filterNot(predicate, store) : table.filterNot(predicate);
            }
            case "map_values" -> {
                ValueMapperWithKey<Object, Object, Object> mapper = Functions.mapper(node.get("fn"));
                yield stored ? table.mapValues(mapper, store) : table.mapValues(mapper);
            }
            case "transform_values" -> {
                ValueTransformerWithKeySupplier<Object, Object, Object> supplier =
                    () -> new MapperTransformer(Functions.mapper(node.get("fn")));
                yield stored ? table.transformValues(supplier, store) : table.transformValues(supplier);
            }
            case "to_stream" ->
                node.has("key") ? table.toStream(Functions.keySelector(node.get("key"))) : table.toStream();
            case "group_by" -> {
                KeyValueMapper<Object, Object, Object> key = Functions.keySelector(node.get("key"));
                ValueMapperWithKey<Object, Object, Object> value = Functions.mapper(node.get("value"));
                yield table.groupBy(
                    (k, v) -> KeyValue.pair(key.apply(k, v), value.apply(k, v)), StreamOperators.grouped(node));
            }
            case "suppress" -> table.suppress(suppressed(node));
            default -> throw new BadCase("not for a table: " + node);
        };
    }

    private record MapperTransformer(ValueMapperWithKey<Object, Object, Object> mapper)
            implements ValueTransformerWithKey<Object, Object, Object> {
        @Override
        public void init(ProcessorContext context) {}

        @Override
        public Object transform(Object key, Object value) {
            return mapper.apply(key, value);
        }

        @Override
        public void close() {}
    }

    @SuppressWarnings("unchecked")
    private static Suppressed<Object> suppressed(Node node) {
        if (node.text("until").equals("window_close")) {
            Suppressed.StrictBufferConfig buffer = node.has("max_records")
                ? Suppressed.BufferConfig.maxRecords(node.number("max_records")).shutDownWhenFull()
                : Suppressed.BufferConfig.unbounded();
            return (Suppressed<Object>) (Suppressed<?>) Suppressed.untilWindowCloses(buffer);
        }
        return Suppressed.untilTimeLimit(node.duration("limit_ms"), buffer(node));
    }

    private static Suppressed.BufferConfig<?> buffer(Node node) {
        Suppressed.BufferConfig<?> buffer = node.has("max_records")
            ? Suppressed.BufferConfig.maxRecords(node.number("max_records"))
            : Suppressed.BufferConfig.unbounded();
        return switch (String.valueOf(node.text("when_full"))) {
            case "shut_down" -> buffer.shutDownWhenFull();
            case "emit_early" -> buffer.emitEarlyWhenFull();
            default -> buffer;
        };
    }
}
