import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** Processors that look at one record and keep nothing. */
final class RecordBehaviours {

    private interface Step {
        void process(Behaviour self, Record<Object, Object> record);
    }

    private RecordBehaviours() {}

    static Behaviour of(JsonNode reference) {
        Step step = step(reference);
        return new Behaviour(reference) {
            @Override
            void process(Record<Object, Object> record) {
                step.process(this, record);
            }
        };
    }

    private static Step step(JsonNode reference) {
        JsonNode argument = reference.path(1);
        Object x = Values.of(argument);
        return switch (reference.get(0).asText()) {
            case "route_by_prefix" -> (self, record) -> route(self, argument, record);
            case "fan_out" -> (self, record) -> {
                for (int i = 0; i < argument.asInt(); i++) {
                    self.forward(record.withValue(Values.text(record.value()) + "#" + i));
                }
            };
            case "metadata" -> (self, record) -> {
                RecordMetadata at = self.context.recordMetadata().orElseThrow();
                self.forward(record.withValue(at.topic() + "/" + at.partition() + "/" + at.offset()));
            };
            case "stream_time" -> (self, record) ->
                self.forward(record.withValue(self.context.currentStreamTimeMs()));
            case "wall_time" -> (self, record) ->
                self.forward(record.withValue(self.context.currentSystemTimeMs()));
            case "shift_timestamp" -> (self, record) ->
                self.forward(record.withTimestamp(record.timestamp() + argument.asLong()));
            case "add_header" -> (self, record) -> {
                RecordHeaders headers = new RecordHeaders(record.headers());
                headers.add(argument.asText(), Behaviour.bytes((String) Values.of(reference.get(2))));
                self.forward(record.withHeaders(headers));
            };
            case "remove_header" -> (self, record) -> {
                RecordHeaders headers = new RecordHeaders(record.headers());
                headers.remove(argument.asText());
                self.forward(record.withHeaders(headers));
            };
            case "header_to_value" -> (self, record) -> {
                Header header = record.headers().lastHeader(argument.asText());
                boolean absent = header == null || header.value() == null;
                self.forward(record.withValue(absent ? null : new String(header.value(), StandardCharsets.UTF_8)));
            };
            case "map_value" -> {
                ValueMapperWithKey<Object, Object, Object> mapper = Functions.mapper(argument);
                yield (self, record) -> self.forward(record.withValue(mapper.apply(record.key(), record.value())));
            }
            case "rekey" -> {
                KeyValueMapper<Object, Object, Object> key = Functions.keySelector(argument);
                yield (self, record) -> self.forward(record.withKey(key.apply(record.key(), record.value())));
            }
            case "fail_on" -> (self, record) -> self.forward(Values.unless(record.value(), x, record));
            case "forward_then_fail_on" -> (self, record) -> {
                self.forward(record);
                Values.unless(record.value(), x, null);
            };
            default -> throw new BadCase("unknown processor " + reference);
        };
    }

    private static void route(Behaviour self, JsonNode options, Record<Object, Object> record) {
        for (Map.Entry<String, JsonNode> route : options.get("routes").properties()) {
            if (Values.text(record.key()).startsWith(route.getKey())) {
                self.forward(record, route.getValue().asText());
                return;
            }
        }
        if (options.has("default")) {
            self.forward(record, options.get("default").asText());
        }
    }
}
