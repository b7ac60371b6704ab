import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;

/**
 * `count`, `reduce` and `aggregate` on whatever is grouped.
 *
 * <p>Each kind of group has methods of its own for the same three operators, so that raw types are the shorter way.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class Aggregations {

    private Aggregations() {}

    static Object aggregate(Node node, Object group) {
        return switch (node.operator()) {
            case "count" -> count(node, group);
            case "reduce" -> reduce(node, group);
            case "aggregate" -> fold(node, group);
            default -> throw new BadCase("not for a group: " + node);
        };
    }

    private static Object count(Node node, Object group) {
        if (!CaseStores.isNamed(node) && !node.has("retention_ms") && !node.has("caching")) {
            return count(group);
        }
        Materialized store = ((Materialized) CaseStores.materialized(node)).withValueSerde(Serdes.Long());
        if (group instanceof KGroupedStream stream) {
            return stream.count(store);
        }
        if (group instanceof KGroupedTable table) {
            return table.count(store);
        }
        if (group instanceof SessionWindowedKStream sessions) {
            return sessions.count(store);
        }
        return ((TimeWindowedKStream) group).count(store);
    }

    /** Not the same as with a store without a name: that would use up one more of the generated names. */
    private static Object count(Object group) {
        if (group instanceof KGroupedStream stream) {
            return stream.count();
        }
        if (group instanceof KGroupedTable table) {
            return table.count();
        }
        if (group instanceof SessionWindowedKStream sessions) {
            return sessions.count();
        }
        return ((TimeWindowedKStream) group).count();
    }

    private static Object reduce(Node node, Object group) {
        Materialized store = CaseStores.materialized(node);
        if (group instanceof KGroupedTable table) {
            return table.reduce(reducer(node.get("adder")), reducer(node.get("subtractor")), store);
        }
        Reducer<Object> reducer = reducer(node.get("reducer"));
        if (group instanceof KGroupedStream stream) {
            return stream.reduce(reducer, store);
        }
        if (group instanceof SessionWindowedKStream sessions) {
            return sessions.reduce(reducer, store);
        }
        return ((TimeWindowedKStream) group).reduce(reducer, store);
    }

    private static Object fold(Node node, Object group) {
        Materialized store = CaseStores.materialized(node);
        Initializer<Object> initializer = () -> Values.of(node.get("initializer"));
        if (group instanceof KGroupedTable table) {
            return table.aggregate(
                initializer,
                Functions.aggregator(node.get("adder")),
                Functions.aggregator(node.get("subtractor")),
                store);
        }
        if (group instanceof CogroupedKStream cogroup) {
            return cogroup.aggregate(initializer, store);
        }
        if (group instanceof TimeWindowedCogroupedKStream cogroup) {
            return cogroup.aggregate(initializer, store);
        }
        if (group instanceof SessionWindowedCogroupedKStream cogroup) {
            return cogroup.aggregate(initializer, merger(node.get("merger")), store);
        }
        Aggregator<Object, Object, Object> aggregator = Functions.aggregator(node.get("aggregator"));
        if (group instanceof KGroupedStream stream) {
            return stream.aggregate(initializer, aggregator, store);
        }
        if (group instanceof SessionWindowedKStream sessions) {
            return sessions.aggregate(initializer, aggregator, merger(node.get("merger")), store);
        }
        return ((TimeWindowedKStream) group).aggregate(initializer, aggregator, store);
    }

    private static Reducer<Object> reducer(JsonNode reference) {
        Aggregator<Object, Object, Object> aggregator = Functions.aggregator(reference);
        return (old, value) -> aggregator.apply(null, value, old);
    }

    private static Merger<Object, Object> merger(JsonNode reference) {
        Aggregator<Object, Object, Object> aggregator = Functions.aggregator(reference);
        return (key, aggregate, next) -> aggregator.apply(key, next, aggregate);
    }
}
