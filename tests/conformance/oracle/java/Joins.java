import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.state.KeyValueStore;

/** Joins of two handles. */
final class Joins {

    private Joins() {}

    static Object join(Node node, Object left, Object right) {
        return switch (node.operator()) {
            case "join_stream_stream" -> streams(node, Handles.stream(left), Handles.stream(right));
            case "join_stream_table" -> streamTable(node, Handles.stream(left), Handles.table(right));
            case "join_stream_global" -> streamGlobal(node, Handles.stream(left), Handles.globalTable(right));
            case "join_table_table" -> tables(node, Handles.table(left), Handles.table(right));
            case "join_foreign_key" -> foreignKey(node, Handles.table(left), Handles.table(right));
            default -> throw new BadCase("unknown join " + node);
        };
    }

    private static Object streams(Node node, KStream<Object, Object> left, KStream<Object, Object> right) {
        ValueJoinerWithKey<Object, Object, Object, Object> joiner = Functions.joiner(node.get("joiner"));
        Node window = node.node("window");
        JoinWindows windows = window.has("grace_ms")
            ? JoinWindows.ofTimeDifferenceAndGrace(window.duration("after_ms"), window.duration("grace_ms"))
            : JoinWindows.ofTimeDifferenceWithNoGrace(window.duration("after_ms"));
        windows = windows.before(window.duration("before_ms"));
        StreamJoined<Object, Object, Object> joined =
            StreamJoined.with(CaseSerdes.KEYS, CaseSerdes.VALUES, CaseSerdes.VALUES);
        if (node.has("name")) {
            joined = joined.withName(node.text("name"));
        }
        return switch (node.text("kind")) {
            case "inner" -> left.join(right, joiner, windows, joined);
            case "left" -> left.leftJoin(right, joiner, windows, joined);
            case "outer" -> left.outerJoin(right, joiner, windows, joined);
            default -> throw new BadCase("unknown kind " + node);
        };
    }

    private static Object streamTable(Node node, KStream<Object, Object> left, KTable<Object, Object> right) {
        ValueJoinerWithKey<Object, Object, Object, Object> joiner = Functions.joiner(node.get("joiner"));
        Joined<Object, Object, Object> joined =
            Joined.with(CaseSerdes.KEYS, CaseSerdes.VALUES, CaseSerdes.VALUES);
        if (node.has("name")) {
            joined = joined.withName(node.text("name"));
        }
        if (node.has("grace_ms")) {
            joined = joined.withGracePeriod(node.duration("grace_ms"));
        }
        return isInner(node) ? left.join(right, joiner, joined) : left.leftJoin(right, joiner, joined);
    }

    private static Object streamGlobal(Node node, KStream<Object, Object> left, GlobalKTable<Object, Object> right) {
        ValueJoinerWithKey<Object, Object, Object, Object> joiner = Functions.joiner(node.get("joiner"));
        KeyValueMapper<Object, Object, Object> key = Functions.keySelector(node.get("key"));
        return isInner(node) ? left.join(right, key, joiner) : left.leftJoin(right, key, joiner);
    }

    private static Object tables(Node node, KTable<Object, Object> left, KTable<Object, Object> right) {
        ValueJoiner<Object, Object, Object> joiner = withoutKey(node);
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store = CaseStores.materialized(node);
        return switch (node.text("kind")) {
            case "inner" -> left.join(right, joiner, store);
            case "left" -> left.leftJoin(right, joiner, store);
            case "outer" -> left.outerJoin(right, joiner, store);
            default -> throw new BadCase("unknown kind " + node);
        };
    }

    private static Object foreignKey(Node node, KTable<Object, Object> left, KTable<Object, Object> right) {
        ValueJoiner<Object, Object, Object> joiner = withoutKey(node);
        KeyValueMapper<Object, Object, Object> foreignKey = Functions.keySelector(node.get("foreign_key"));
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> store = CaseStores.materialized(node);
        return isInner(node)
            ? left.join(right, foreignKey::apply, joiner, store)
            : left.leftJoin(right, foreignKey::apply, joiner, store);
    }

    private static ValueJoiner<Object, Object, Object> withoutKey(Node node) {
        ValueJoinerWithKey<Object, Object, Object, Object> joiner = Functions.joiner(node.get("joiner"));
        return (left, right) -> joiner.apply(null, left, right);
    }

    private static boolean isInner(Node node) {
        return switch (node.text("kind")) {
            case "inner" -> true;
            case "left" -> false;
            default -> throw new BadCase("unknown kind " + node);
        };
    }
}
