import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.StreamsConfig.InternalConfig;
import org.apache.kafka.streams.errors.LogAndContinueExceptionHandler;
import org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler;

/** The settings of a case (SPEC section 7) as Kafka Streams has them. */
final class CaseConfig {

    /** The prefix of internal topics; the recorded cases have it. */
    static final String APPLICATION_ID = "oracle";

    private CaseConfig() {}

    static Properties properties(Node config, Path stateFolder) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION_ID);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, stateFolder.toString());
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, CaseSerdes.Keys.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, CaseSerdes.AnyValues.class);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, config.number("cache_max_bytes"));
        // Settings for Kafka Streams' own tests; in production final results are held back for a second.
        long emitInterval = config.number("emit_interval_ms");
        properties.put(InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, emitInterval);
        properties.put(InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, emitInterval);
        if ("continue".equals(config.text("deserialization_handler"))) {
            properties.put(
                StreamsConfig.DESERIALIZATION_EXCEPTION_HANDLER_CLASS_CONFIG, LogAndContinueExceptionHandler.class);
        }
        if ("continue".equals(config.text("processing_handler"))) {
            properties.put(
                StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG,
                LogAndContinueProcessingExceptionHandler.class);
        }
        if (config.has("dlq_topic")) {
            properties.put(StreamsConfig.ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME_CONFIG, config.text("dlq_topic"));
        }
        if (config.json().path("optimize").asBoolean()) {
            properties.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
        }
        if ("exactly_once".equals(config.text("guarantee"))) {
            properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        }
        properties.put(
            StreamsConfig.ENSURE_EXPLICIT_INTERNAL_RESOURCE_NAMING_CONFIG,
            config.json().path("require_explicit_names").asBoolean());
        return properties;
    }
}
