import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;

/** Processors of the cases, by reference. */
final class Processors {

    private Processors() {}

    static Behaviour behaviour(JsonNode reference) {
        return switch (reference.get(0).asText()) {
            case "dedup", "running_total", "velocity", "buffer_until", "put_into", "lookup_in" ->
                StoreBehaviours.of(reference);
            case "store_script" -> new StoreCommands(reference);
            case "wall_clock_count", "stream_clock", "cancel_after", "schedule_at" -> ClockBehaviours.of(reference);
            default -> RecordBehaviours.of(reference);
        };
    }

    static ProcessorSupplier<Object, Object, Object, Object> supplier(JsonNode reference) {
        return () -> new Processor<>() {
            private final Behaviour behaviour = behaviour(reference);

            @Override
            public void init(ProcessorContext<Object, Object> context) {
                behaviour.start(context, (record, child) -> {
                    if (child == null) {
                        context.forward(record);
                    } else {
                        context.forward(record, child);
                    }
                });
            }

            @Override
            public void process(Record<Object, Object> record) {
                behaviour.process(record);
            }
        };
    }

    static FixedKeyProcessorSupplier<Object, Object, Object> fixedKeySupplier(JsonNode reference) {
        return () -> new FixedKeyProcessor<>() {
            private final Behaviour behaviour = behaviour(reference);
            private FixedKeyRecord<Object, Object> current;

            @Override
            public void init(FixedKeyProcessorContext<Object, Object> context) {
                behaviour.start(context, (record, child) -> context.forward(
                    current.withValue(record.value()).withTimestamp(record.timestamp()).withHeaders(record.headers())));
            }

            @Override
            public void process(FixedKeyRecord<Object, Object> record) {
                current = record;
                behaviour.process(new Record<>(record.key(), record.value(), record.timestamp(), record.headers()));
            }
        };
    }
}
