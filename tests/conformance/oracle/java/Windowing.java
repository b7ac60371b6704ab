import java.time.Instant;
import org.apache.kafka.streams.kstream.CogroupedKStream;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.kstream.Windows;

/** Windows over a grouped or a cogrouped stream. */
final class Windowing {

    private Windowing() {}

    @SuppressWarnings("unchecked")
    static Object windowedBy(Node node, Object group) {
        return group instanceof CogroupedKStream
            ? ofCogroup(node.node("window"), (CogroupedKStream<Object, Object>) group)
            : ofGroup(node, Handles.group(group));
    }

    private static Object ofCogroup(Node window, CogroupedKStream<Object, Object> group) {
        return switch (window.text("type")) {
            case "session" -> group.windowedBy(sessions(window));
            case "sliding" -> group.windowedBy(sliding(window));
            default -> group.windowedBy(fixed(window));
        };
    }

    private static Object ofGroup(Node node, KGroupedStream<Object, Object> group) {
        Node window = node.node("window");
        return switch (window.text("type")) {
            case "session" -> emitting(node, group.windowedBy(sessions(window)));
            case "sliding" -> emitting(node, group.windowedBy(sliding(window)));
            default -> emitting(node, group.windowedBy(fixed(window)));
        };
    }

    private static Object emitting(Node node, TimeWindowedKStream<Object, Object> windowed) {
        return isOnClose(node) ? windowed.emitStrategy(EmitStrategy.onWindowClose()) : windowed;
    }

    private static Object emitting(Node node, SessionWindowedKStream<Object, Object> windowed) {
        return isOnClose(node) ? windowed.emitStrategy(EmitStrategy.onWindowClose()) : windowed;
    }

    private static boolean isOnClose(Node node) {
        return "on_window_close".equals(node.text("emit"));
    }

    private static SessionWindows sessions(Node window) {
        return window.has("grace_ms")
            ? SessionWindows.ofInactivityGapAndGrace(window.duration("gap_ms"), window.duration("grace_ms"))
            : SessionWindows.ofInactivityGapWithNoGrace(window.duration("gap_ms"));
    }

    private static SlidingWindows sliding(Node window) {
        return window.has("grace_ms")
            ? SlidingWindows.ofTimeDifferenceAndGrace(window.duration("diff_ms"), window.duration("grace_ms"))
            : SlidingWindows.ofTimeDifferenceWithNoGrace(window.duration("diff_ms"));
    }

    private static Windows<?> fixed(Node window) {
        return switch (window.text("type")) {
            case "unlimited" -> UnlimitedWindows.of().startOn(Instant.ofEpochMilli(window.number("start_ms")));
            case "tumbling" -> tumbling(window);
            case "hopping" -> tumbling(window).advanceBy(window.duration("advance_ms"));
            default -> throw new BadCase("unknown windows " + window);
        };
    }

    private static TimeWindows tumbling(Node window) {
        return window.has("grace_ms")
            ? TimeWindows.ofSizeAndGrace(window.duration("size_ms"), window.duration("grace_ms"))
            : TimeWindows.ofSizeWithNoGrace(window.duration("size_ms"));
    }
}
