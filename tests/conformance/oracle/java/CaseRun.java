import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Instant;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.test.TestRecord;

/** One case on Kafka Streams' own test driver: its inputs go in, what can be observed comes out (SPEC section 8). */
final class CaseRun {

    private static final String STACK_TRACE = "__streams.errors.stacktrace";
    private static final String CHANGELOG = "-changelog";

    private final Node theCase;
    private final ArrayNode outputs = Values.JSON.createArrayNode();
    private final ArrayNode peeked = Values.JSON.createArrayNode();
    private final Map<String, TestOutputTopic<byte[], byte[]>> topics = new HashMap<>();
    /** Of all stores, and more; needed to look into versioned ones. */
    private final Set<Object> storedKeys = new HashSet<>();
    private TopologyTestDriver driver;
    /** The input in process, counted from 0; -1 before the first. */
    private int step = -1;

    private CaseRun(Node theCase) {
        this.theCase = theCase;
    }

    /** The results, in the form of a case's `expected`. */
    static ObjectNode of(Node theCase, Path stateFolder) {
        return new CaseRun(theCase).run(CaseConfig.properties(theCase.node("config"), stateFolder));
    }

    private ObjectNode run(Properties properties) {
        Node spec = theCase.node("spec");
        Node config = theCase.node("config");
        ObjectNode result = Values.JSON.createObjectNode();
        try {
            Topology topology = "processor".equals(spec.text("api"))
                ? LowLevelTopology.of(spec)
                : DslTopology.of(spec, properties, this::log);
            result.put("describe", topology.describe().toString());
            driver = new TopologyTestDriver(
                topology, properties, Instant.ofEpochMilli(config.number("initial_wall_clock_ms")));
        } catch (RuntimeException error) {
            return withError(Values.JSON.createObjectNode(), "build", error);
        }
        try {
            feed(result);
        } finally {
            close();
        }
        return result;
    }

    private void close() {
        try {
            driver.close();
        } catch (RuntimeException ignored) {
            // After a failed step the stores may not be flushed any more; the result is complete.
        }
    }

    private void feed(ObjectNode result) {
        result.set("outputs", outputs);
        collectInto(outputs);
        RuntimeException failure = null;
        for (Node input : theCase.nodes("inputs")) {
            step++;
            try {
                accept(input);
            } catch (RuntimeException error) {
                failure = error;
                break;
            }
            collectInto(outputs);
        }
        if (!peeked.isEmpty()) {
            result.set("peeked", peeked);
        }
        if (failure == null) {
            result.set("stores", StoreContents.of(driver, theCase, storedKeys));
        } else {
            captureSent();
            collectInto(result.putArray("outputs_of_failed_step"));
            withError(result, "run", failure);
        }
    }

    private ObjectNode withError(ObjectNode result, String phase, RuntimeException error) {
        Throwable cause = error;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        ObjectNode shown = result.putObject("error").put("phase", phase);
        if (phase.equals("run")) {
            shown.put("after_input", step);
        }
        shown.put("class", error.getClass().getName()).put("message", String.valueOf(cause.getMessage()));
        return result;
    }

    private void log(String node, Object key, Object value) {
        ObjectNode row = peeked.addObject().put("after_input", step).put("node", node);
        row.set("key", Values.json(key));
        row.set("value", Values.json(value));
    }

    private void accept(Node input) {
        if (input.has("advance_wall_clock_ms")) {
            driver.advanceWallClockTime(input.duration("advance_wall_clock_ms"));
            return;
        }
        String topic = input.text("topic");
        // An optimized table has no changelog but its topic.
        if (input.has("key")) {
            storedKeys.add(input.text("key"));
        }
        RecordHeaders headers = new RecordHeaders();
        input.json().path("headers").forEach(header ->
            headers.add(header.get(0).asText(), Behaviour.bytes((String) Values.of(header.get(1)))));
        driver.createInputTopic(topic, new ByteArraySerializer(), new ByteArraySerializer())
            .pipeInput(new TestRecord<>(
                Behaviour.bytes(input.text("key")), valueBytes(input), headers, input.number("timestamp")));
    }

    private byte[] valueBytes(Node input) {
        if (input.has("raw_value")) {
            return Behaviour.bytes(input.text("raw_value"));
        }
        if (!input.has("value")) {
            return null;
        }
        JsonNode value = input.get("value");
        return Behaviour.bytes(switch (valueType(input.text("topic"))) {
            case "json" -> value.toString();
            case "double" -> String.valueOf(value.asDouble());
            default -> Values.text(Values.of(value));
        });
    }

    private String valueType(String topic) {
        for (Node node : theCase.node("spec").nodes("nodes")) {
            boolean reads = node.texts("topic").contains(topic)
                || node.texts("topics").contains(topic)
                || (node.has("topic_pattern") && Pattern.matches(node.text("topic_pattern"), topic));
            if (reads && node.has("value_type")) {
                return node.text("value_type");
            }
        }
        return "string"; // nothing reads it, which is for Kafka Streams to say
    }

    /** What was produced since the last call. */
    private void collectInto(ArrayNode rows) {
        for (String topic : driver.producedTopicNames()) {
            TestOutputTopic<byte[], byte[]> output = topics.computeIfAbsent(topic, this::outputTopic);
            while (!output.isEmpty()) {
                TestRecord<byte[], byte[]> record = output.readRecord();
                if (topic.endsWith(CHANGELOG)) {
                    storedKeys.add(CaseSerdes.KEYS.deserializer().deserialize(topic, record.key()));
                } else if (!topic.startsWith(CaseConfig.APPLICATION_ID + "-")) {
                    add(rows, topic, record);
                }
            }
        }
    }

    private TestOutputTopic<byte[], byte[]> outputTopic(String topic) {
        return driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** The driver looks at what was sent after each record, but not after one that failed. */
    private void captureSent() {
        try {
            Method capture = TopologyTestDriver.class.getDeclaredMethod("captureOutputsAndReEnqueueInternalResults");
            capture.setAccessible(true);
            capture.invoke(driver);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private void add(ArrayNode rows, String topic, TestRecord<byte[], byte[]> record) {
        ObjectNode row = rows.addObject().put("after_input", step).put("topic", topic);
        row.set("key", Values.json(CaseSerdes.KEYS.deserializer().deserialize(topic, record.key())));
        row.set("value", Values.json(CaseSerdes.VALUES.deserializer().deserialize(topic, record.value())));
        row.put("timestamp", record.timestamp());
        ArrayNode headers = Values.JSON.createArrayNode();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.key().equals(STACK_TRACE) ? "*" : text(header));
        }
        if (!headers.isEmpty()) {
            row.set("headers", headers);
        }
    }

    private static String text(Header header) {
        return header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8);
    }
}
