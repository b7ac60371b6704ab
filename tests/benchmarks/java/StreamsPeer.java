import com.fasterxml.jackson.annotation.JsonPropertyOrder;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
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

    private static void build(StreamsBuilder builder, String topology, String input, String table, String output) {
        Serde<String> text = Serdes.String();
        Serde<Bid> bid = json(Bid.class);
        KStream<String, Bid> bids = builder.stream(input, Consumed.with(text, bid));
        switch (topology) {
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
