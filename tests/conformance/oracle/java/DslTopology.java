import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.ForeachAction;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.state.Stores;

/**
 * Builds a topology of the DSL (SPEC section 3), node by node in the order of the case.
 *
 * <p>Handles have no static types here: a case is data. What does not fit is an error of the build, as the case is.
 */
final class DslTopology {

    /** Where `peek` and `foreach` write. */
    interface Log {
        void add(String node, Object key, Object value);
    }

    private final StreamsBuilder builder;
    private final Log log;
    private final Map<String, Object> handles = new HashMap<>();

    private DslTopology(Properties properties, Log log) {
        builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(properties)));
        this.log = log;
    }

    static Topology of(Node spec, Properties properties, Log log) {
        DslTopology topology = new DslTopology(properties, log);
        for (Node store : spec.nodes("stores")) {
            topology.builder.addStateStore(CaseStores.builder(store));
        }
        for (Node node : spec.nodes("nodes")) {
            Object handle = topology.add(node);
            if (node.has("id") && handle != null) {
                topology.handles.put(node.id(), handle);
            }
        }
        return topology.builder.build(properties);
    }

    private Object add(Node node) {
        List<Object> inputs = node.texts("in").stream().map(handles::get).toList();
        if (inputs.isEmpty()) {
            return source(node);
        }
        Object first = inputs.get(0);
        if (node.operator().startsWith("join_")) {
            return Joins.join(node, first, inputs.get(1));
        }
        if (node.operator().equals("cogroup")) {
            return cogroup(node, inputs);
        }
        if (first instanceof KStream) {
            return onStream(node, inputs);
        }
        if (first instanceof KTable) {
            return TableOperators.add(node, Handles.table(first));
        }
        if (node.operator().equals("windowed_by")) {
            return Windowing.windowedBy(node, first);
        }
        return Aggregations.aggregate(node, first);
    }

    private Object source(Node node) {
        Consumed<Object, Object> consumed = Consumed.with(CaseSerdes.KEYS, CaseSerdes.values(node.text("value_type")));
        return switch (node.operator()) {
            case "stream" -> stream(node, consumed);
            case "table" -> table(node, consumed);
            case "global_table" -> builder.globalTable(node.text("topic"), consumed, CaseStores.ofSource(node));
            case "global_store" -> {
                ProcessorSupplier<Object, Object, Void, Void> putInto =
                    Handles.withoutOutput(Processors.supplier(putInto(node.text("store"))));
                builder.addGlobalStore(
                    CaseStores.keyValue(node.text("store")), node.text("topic"), consumed, putInto);
                yield null;
            }
            default -> throw new BadCase("no input: " + node);
        };
    }

    private KStream<Object, Object> stream(Node node, Consumed<Object, Object> consumed) {
        if (node.has("timestamp_extractor")) {
            consumed = consumed.withTimestampExtractor(timestampExtractor(node.get("timestamp_extractor")));
        }
        if (node.has("topic_pattern")) {
            return builder.stream(Pattern.compile(node.text("topic_pattern")), consumed);
        }
        return builder.stream(node.texts(node.has("topics") ? "topics" : "topic"), consumed);
    }

    private KTable<Object, Object> table(Node node, Consumed<Object, Object> consumed) {
        if (node.has("history_ms")) {
            Materialized<Object, Object, ?> versioned = Materialized.<Object, Object>as(
                    Stores.persistentVersionedKeyValueStore(node.text("store"), node.duration("history_ms")))
                .withKeySerde(CaseSerdes.KEYS)
                .withValueSerde(CaseSerdes.values(node.text("value_type")));
            return builder.table(node.text("topic"), consumed, Handles.keyValue(versioned));
        }
        return CaseStores.isNamed(node)
            ? builder.table(node.text("topic"), consumed, CaseStores.ofSource(node))
            : builder.table(node.text("topic"), consumed);
    }

    private static TimestampExtractor timestampExtractor(JsonNode reference) {
        String field = reference.get(1).asText();
        boolean elsePartitionTime = reference.get(0).asText().equals("value_field_or_partition_time");
        return (record, partitionTime) -> {
            Object time = Values.field(record.value(), field);
            if (time == null) {
                return elsePartitionTime ? partitionTime : -1;
            }
            return Values.number(time).longValue();
        };
    }

    private static JsonNode putInto(String store) {
        ObjectNode options = Values.JSON.createObjectNode().put("store", store);
        return Values.JSON.createArrayNode().add("put_into").add(options);
    }

    private Object onStream(Node node, List<Object> inputs) {
        KStream<Object, Object> stream = Handles.stream(inputs.get(0));
        ForeachAction<Object, Object> logged = (k, v) -> log.add(node.id(), k, v);
        return switch (node.operator()) {
            case "peek" -> stream.peek(logged);
            case "foreach" -> {
                stream.foreach(logged);
                yield null;
            }
            case "merge" -> {
                for (Object other : inputs.subList(1, inputs.size())) {
                    stream = stream.merge(Handles.stream(other));
                }
                yield stream;
            }
            case "split" -> {
                handles.putAll(StreamOperators.split(node, stream));
                yield null;
            }
            default -> StreamOperators.add(node, stream);
        };
    }

    private static CogroupedKStream<Object, Object> cogroup(Node node, List<Object> groups) {
        Iterator<JsonNode> aggregators = node.get("aggregators").elements();
        CogroupedKStream<Object, Object> cogrouped = null;
        for (Object each : groups) {
            KGroupedStream<Object, Object> group = Handles.group(each);
            var aggregator = Functions.aggregator(aggregators.next());
            cogrouped = cogrouped == null ? group.cogroup(aggregator) : cogrouped.cogroup(group, aggregator);
        }
        return cogrouped;
    }
}
