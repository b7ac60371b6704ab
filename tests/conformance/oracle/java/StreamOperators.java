import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.BranchedKStream;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.TopicNameExtractor;

/** Operators on one stream. */
final class StreamOperators {

    private StreamOperators() {}

    static Object add(Node node, KStream<Object, Object> stream) {
        return switch (node.operator()) {
            case "to" -> {
                to(node, stream);
                yield null;
            }
            case "filter" -> stream.filter(Functions.predicate(node.get("predicate")));
            case "filter_not" -> stream.filterNot(Functions.predicate(node.get("predicate")));
            case "map" -> {
                KeyValueMapper<Object, Object, Object> key = Functions.keySelector(node.get("key"));
                ValueMapperWithKey<Object, Object, Object> value = Functions.mapper(node.get("value"));
                yield stream.map((k, v) -> KeyValue.pair(key.apply(k, v), value.apply(k, v)));
            }
            case "map_values" -> stream.mapValues(Functions.mapper(node.get("fn")));
            case "flat_map" -> stream.flatMap(Functions.pairFlatMapper(node.get("fn")));
            case "flat_map_values" -> stream.flatMapValues(Functions.flatMapper(node.get("fn")));
            case "select_key" -> stream.selectKey(Functions.keySelector(node.get("key")));
            case "repartition" -> stream.repartition(repartitioned(node));
            case "to_table" -> CaseStores.isNamed(node)
                ? stream.toTable(CaseStores.materialized(node))
                : stream.toTable(Materialized.with(CaseSerdes.KEYS, CaseSerdes.VALUES));
            case "process" -> stream.process(
                Processors.supplier(node.get("processor")), Named.as(node.id()), node.names("stores"));
            case "process_values" -> stream.processValues(
                Processors.fixedKeySupplier(node.get("processor")), Named.as(node.id()), node.names("stores"));
            case "group_by_key" -> stream.groupByKey(grouped(node));
            case "group_by" -> stream.groupBy(Functions.keySelector(node.get("key")), grouped(node));
            default -> throw new BadCase("not for a stream: " + node);
        };
    }

    private static void to(Node node, KStream<Object, Object> stream) {
        Produced<Object, Object> produced = Produced.with(CaseSerdes.KEYS, CaseSerdes.VALUES);
        if (node.has("topic")) {
            stream.to(node.text("topic"), produced);
        } else {
            stream.to(described(topicExtractor(node.get("topic_extractor"))), produced);
        }
    }

    private static TopicNameExtractor<Object, Object> topicExtractor(JsonNode reference) {
        String text = reference.get(1).asText();
        return switch (reference.get(0).asText()) {
            case "prefix_and_key" -> (k, v, context) -> text + Values.text(k);
            case "prefix_and_field" -> (k, v, context) ->
                text + Values.text(Values.field(v, reference.get(2).asText()));
            case "source_topic_suffix" -> (k, v, context) -> context.topic() + text;
            default -> throw new BadCase("unknown topic extractor " + reference);
        };
    }

    /** The name of a lambda differs from run to run, so that the description of the topology would, too. */
    private static TopicNameExtractor<Object, Object> described(TopicNameExtractor<Object, Object> extractor) {
        return new TopicNameExtractor<>() {
            @Override
            public String extract(Object key, Object value, RecordContext context) {
                return extractor.extract(key, value, context);
            }

            @Override
            public String toString() {
                return "function";
            }
        };
    }

    static Map<String, KStream<Object, Object>> split(Node node, KStream<Object, Object> stream) {
        String prefix = node.id() + "-";
        BranchedKStream<Object, Object> branched = stream.split(Named.as(prefix));
        for (Node branch : node.nodes("branches")) {
            branched = branched.branch(Functions.predicate(branch.get("predicate")), Branched.as(branch.id()));
        }
        Map<String, KStream<Object, Object>> named = node.has("default")
            ? branched.defaultBranch(Branched.as(node.text("default")))
            : branched.noDefaultBranch();
        Map<String, KStream<Object, Object>> branches = new HashMap<>();
        named.forEach((name, branch) -> branches.put(name.substring(prefix.length()), branch));
        return branches;
    }

    private static Repartitioned<Object, Object> repartitioned(Node node) {
        Repartitioned<Object, Object> repartitioned = Repartitioned.with(CaseSerdes.KEYS, CaseSerdes.VALUES);
        if (node.has("name")) {
            repartitioned = repartitioned.withName(node.text("name"));
        }
        if (node.has("partitions")) {
            repartitioned = repartitioned.withNumberOfPartitions((int) node.number("partitions"));
        }
        return repartitioned;
    }

    static Grouped<Object, Object> grouped(Node node) {
        Grouped<Object, Object> grouped = Grouped.with(CaseSerdes.KEYS, CaseSerdes.VALUES);
        return node.has("name") ? grouped.withName(node.text("name")) : grouped;
    }
}
