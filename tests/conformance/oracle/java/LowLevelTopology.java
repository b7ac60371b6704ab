import org.apache.kafka.streams.Topology;

/** Builds a low-level topology (SPEC section 4). */
final class LowLevelTopology {

    private LowLevelTopology() {}

    static Topology of(Node spec) {
        Topology topology = new Topology();
        for (Node node : spec.nodes("nodes")) {
            switch (node.operator()) {
                case "source" -> topology.addSource(
                    node.id(),
                    CaseSerdes.KEYS.deserializer(),
                    CaseSerdes.values(node.text("value_type")).deserializer(),
                    node.names(node.has("topics") ? "topics" : "topic"));
                case "processor" ->
                    topology.addProcessor(node.id(), Processors.supplier(node.get("processor")), node.names("in"));
                case "sink" -> topology.addSink(
                    node.id(),
                    node.text("topic"),
                    CaseSerdes.KEYS.serializer(),
                    CaseSerdes.VALUES.serializer(),
                    node.names("in"));
                default -> throw new BadCase("unknown node " + node);
            }
        }
        for (Node store : spec.nodes("stores")) {
            topology.addStateStore(CaseStores.builder(store), store.names("processors"));
        }
        return topology;
    }
}
