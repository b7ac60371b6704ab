import com.fasterxml.jackson.annotation.JsonPropertyOrder;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * Kafka Streams' side of the benchmark: the topologies of tests/benchmarks/pipelines.py and recovery.py in Java.
 *
 * <p>Usage: java StreamsPeer TOPOLOGY INPUT TABLE OUTPUT name=value... (any Streams, consumer or producer setting)
 */
public final class StreamsPeer {

    @JsonPropertyOrder({"auction", "bidder", "price", "channel", "url", "dateTime", "extra"})
    public static final class Bid {
        public long auction;
        public long bidder;
        public long price;
        public String channel;
        public String url;
        public long dateTime;
        public String extra;
    }

    public static final class Auction {
        public long id;
        public String itemName;
        public long category;
        public long seller;
        public long reserve;
    }

    @JsonPropertyOrder({"auction", "bidder", "price", "dateTime", "seller", "category"})
    public static final class EnrichedBid {
        public long auction;
        public long bidder;
        public long price;
        public long dateTime;
        public long seller;
        public long category;

        static EnrichedBid of(Bid bid, Auction auction) {
            EnrichedBid enriched = new EnrichedBid();
            enriched.auction = bid.auction;
            enriched.bidder = bid.bidder;
            enriched.price = bid.price;
            enriched.dateTime = bid.dateTime;
            enriched.seller = auction.seller;
            enriched.category = auction.category;
            return enriched;
        }
    }

    private static <T> Serde<T> json(Class<T> type) {
        ObjectMapper mapper = new ObjectMapper();
        ObjectReader reader = mapper.readerFor(type);
        ObjectWriter writer = mapper.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return value == null ? null : writer.writeValueAsBytes(value);
                } catch (IOException problem) {
                    throw new SerializationException(problem);
                }
            },
            (topic, data) -> {
                try {
                    return data == null ? null : reader.<T>readValue(data);
                } catch (IOException problem) {
                    throw new SerializationException(problem);
                }
            });
    }

    private static final Schema BID =
        SchemaBuilder.record("Bid").fields()
            .requiredLong("auction").requiredLong("bidder").requiredLong("price")
            .requiredString("channel").requiredString("url").requiredLong("dateTime").requiredString("extra")
            .endRecord();

    /** Through Avro's generic records; its decoders and encoders are used again. */
    private static Serde<Bid> avro() {
        ThreadLocal<BinaryDecoder> decoders = new ThreadLocal<>();
        ThreadLocal<BinaryEncoder> encoders = new ThreadLocal<>();
        ThreadLocal<GenericDatumReader<GenericRecord>> readers =
            ThreadLocal.withInitial(() -> new GenericDatumReader<>(BID));
        ThreadLocal<GenericDatumWriter<GenericRecord>> writers =
            ThreadLocal.withInitial(() -> new GenericDatumWriter<>(BID));
        return Serdes.serdeFrom(
            (topic, bid) -> {
                if (bid == null) {
                    return null;
                }
                try {
                    ByteArrayOutputStream bytes = new ByteArrayOutputStream(300);
                    BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(bytes, encoders.get());
                    encoders.set(encoder);
                    GenericRecord record = new GenericData.Record(BID);
                    record.put(0, bid.auction);
                    record.put(1, bid.bidder);
                    record.put(2, bid.price);
                    record.put(3, bid.channel);
                    record.put(4, bid.url);
                    record.put(5, bid.dateTime);
                    record.put(6, bid.extra);
                    writers.get().write(record, encoder);
                    encoder.flush();
                    return bytes.toByteArray();
                } catch (IOException problem) {
                    throw new SerializationException(problem);
                }
            },
            (topic, data) -> {
                if (data == null) {
                    return null;
                }
                try {
                    BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(data, decoders.get());
                    decoders.set(decoder);
                    GenericRecord record = readers.get().read(null, decoder);
                    Bid bid = new Bid();
                    bid.auction = (long) record.get(0);
                    bid.bidder = (long) record.get(1);
                    bid.price = (long) record.get(2);
                    bid.channel = record.get(3).toString();
                    bid.url = record.get(4).toString();
                    bid.dateTime = (long) record.get(5);
                    bid.extra = record.get(6).toString();
                    return bid;
                } catch (IOException problem) {
                    throw new SerializationException(problem);
                }
            });
    }

    private static void build(StreamsBuilder builder, String topology, String input, String table, String output) {
        Serde<String> text = Serdes.String();
        Serde<Bid> bid = topology.endsWith("-avro") ? avro() : json(Bid.class);
        KStream<String, Bid> bids = builder.stream(input, Consumed.with(text, bid));
        switch (topology.replace("-avro", "")) {
            case "filter":
                bids.filter((key, value) -> value.price % 2 == 0).to(output, Produced.with(text, bid));
                break;
            case "count":
                TimeWindows tumbling =
                    TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5));
                bids.groupByKey(Grouped.with(text, bid))
                    .windowedBy(tumbling)
                    .count(Materialized.as("bid-counts"))
                    .toStream()
                    .to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 10_000L), Serdes.Long()));
                break;
            case "session":
                SessionWindows sessions =
                    SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(2), Duration.ofSeconds(10));
                bids.groupByKey(Grouped.with(text, bid))
                    .windowedBy(sessions)
                    .count(Materialized.as("bid-sessions"))
                    .toStream()
                    .to(output, Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long()));
                break;
            case "join":
                Serde<Auction> auction = json(Auction.class);
                KTable<String, Auction> auctions =
                    builder.table(table, Consumed.with(text, auction), Materialized.as("auctions"));
                bids.join(auctions, EnrichedBid::of, Joined.with(text, bid, auction))
                    .to(output, Produced.with(text, json(EnrichedBid.class)));
                break;
            case "latest":
                bids.groupByKey(Grouped.with(text, bid))
                    .reduce((before, now) -> now, Materialized.as("latest"))
                    .toStream()
                    .to(output, Produced.with(text, bid));
                break;
            default:
                throw new IllegalArgumentException("unknown topology '" + topology + "': filter, count, session, join or latest");
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties properties = new Properties();
        for (int index = 4; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, arguments[0], arguments[1], arguments[2], arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        CountDownLatch stopped = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(
            problem -> {
                problem.printStackTrace();
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse
                    .SHUTDOWN_CLIENT;
            });
        streams.setStateListener(
            (now, before) -> {
                if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                    stopped.countDown();
                }
            });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
        stopped.await();
    }
}
