package deltaworks.connect;

import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Headers;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Writes what Debezium says of a change into headers, as texts, so that rows made of it keep it.
 *
 * Positions of a database are texts of one length. Of two changes of a row, the later one has the greater position: a row
 * is locked until its transaction has ended. A row of a snapshot may have the position of the first change after it in
 * the log, so it gets a 0 behind it, and a change a 1. Records that are no changes stay as they are.
 */
public final class ChangeHeaders<R extends ConnectRecord<R>> implements Transformation<R>, Versioned {
    private static final String PREFIX = "prefix";
    private static final ConfigDef CONFIG = new ConfigDef()
            .define(PREFIX, ConfigDef.Type.STRING, "change.", ConfigDef.Importance.LOW, "What names of headers begin with.");
    private static final Pattern FILE = Pattern.compile("\\.(\\d{1,10})$");

    private String prefix;

    @Override
    public void configure(Map<String, ?> settings) {
        prefix = (String) CONFIG.parse(settings).get(PREFIX);
    }

    @Override
    public ConfigDef config() {
        return CONFIG;
    }

    @Override
    public String version() {
        return "1";
    }

    @Override
    public void close() {
    }

    @Override
    public R apply(R record) {
        Object change = record.value();
        Object source = field(change, "source");
        if (!(field(change, "op") instanceof String op) || source == null) {
            return record;
        }
        Headers headers = new ConnectHeaders(record.headers());
        for (Map.Entry<String, Object> each : told(change, source, op).entrySet()) {
            headers.remove(prefix + each.getKey());
            if (each.getValue() != null) {
                headers.addString(prefix + each.getKey(), each.getValue().toString());
            }
        }
        return record.newRecord(record.topic(), record.kafkaPartition(), record.keySchema(), record.key(),
                record.valueSchema(), record.value(), record.timestamp(), headers);
    }

    private static Map<String, Object> told(Object change, Object source, String op) {
        Object snapshot = field(source, "snapshot");
        Object transaction = field(source, "txId");
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("op", op);
        found.put("connector", field(source, "connector"));
        found.put("snapshot", snapshot == null ? "false" : snapshot);
        found.put("ts_ms", field(source, "ts_ms"));
        found.put("transaction", transaction == null ? field(field(change, "transaction"), "id") : transaction);
        found.put("gtid", field(source, "gtid"));
        found.put("position", position(source, op.equals("r") ? 0 : 1));
        return found;
    }

    /** Where the change is in the log of its database; null if that has no such place. */
    private static String position(Object source, int order) {
        if (field(source, "lsn") instanceof Long lsn) {
            return String.format(Locale.ROOT, "%016X-%d", lsn, order);
        }
        if (field(source, "file") instanceof String file && field(source, "pos") instanceof Number pos) {
            Matcher number = FILE.matcher(file);
            long row = field(source, "row") instanceof Number found ? found.longValue() : 0;
            return number.find()
                    ? String.format(Locale.ROOT, "%010d-%019d-%d-%010d", Long.valueOf(number.group(1)), pos.longValue(), order, row)
                    : null;
        }
        return null;
    }

    /** A field of a struct, or of a map; null if there is none. */
    private static Object field(Object holder, String name) {
        if (holder instanceof Struct struct) {
            return struct.schema().field(name) == null ? null : struct.get(name);
        }
        return holder instanceof Map<?, ?> map ? map.get(name) : null;
    }
}
