import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Record;

/** Processors that only wait for a punctuator. */
final class ClockBehaviours {

    private ClockBehaviours() {}

    static Behaviour of(JsonNode reference) {
        return switch (reference.get(0).asText()) {
            case "wall_clock_count" -> new WallClockCount(reference);
            case "stream_clock" -> new Clock(reference, true, Long.MAX_VALUE);
            case "schedule_at" -> new Clock(reference, false, Long.MAX_VALUE);
            case "cancel_after" -> new Clock(reference, false, reference.get(1).get("n").asLong());
            default -> throw new BadCase("unknown processor " + reference);
        };
    }

    /** Forwards how many records there were. */
    private static final class WallClockCount extends Behaviour {
        private long count;

        WallClockCount(JsonNode reference) {
            super(reference);
        }

        @Override
        void init() {
            schedule(PunctuationType.WALL_CLOCK_TIME, time -> forwardNew("count", count, time));
        }

        @Override
        void process(Record<Object, Object> record) {
            count++;
        }
    }

    /** Forwards a tick per punctuation, at most {@code ticks}. */
    private static final class Clock extends Behaviour {
        private final boolean passes;
        private final long ticks;
        private long ticked;
        private Cancellable schedule;

        Clock(JsonNode reference, boolean passes, long ticks) {
            super(reference);
            this.passes = passes;
            this.ticks = ticks;
        }

        @Override
        void init() {
            schedule = schedule(this::tick);
        }

        private void tick(long time) {
            forwardNew("tick", time, time);
            if (++ticked >= ticks) {
                schedule.cancel();
            }
        }

        @Override
        void process(Record<Object, Object> record) {
            if (passes) {
                forward(record);
            }
        }
    }
}
