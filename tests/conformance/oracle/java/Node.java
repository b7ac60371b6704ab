import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** One operator, store or window of a case (SPEC section 3), read field by field. */
record Node(JsonNode json) {

    String operator() {
        return text("op");
    }

    /** Of a node that needs none, null. */
    String id() {
        return text("id");
    }

    boolean has(String field) {
        return json.hasNonNull(field);
    }

    JsonNode get(String field) {
        return json.get(field);
    }

    /** Null if there is no such field. */
    String text(String field) {
        return has(field) ? json.get(field).asText() : null;
    }

    /** A field that holds one text or a list of them. */
    List<String> texts(String field) {
        List<String> texts = new ArrayList<>();
        if (json.path(field).isTextual()) {
            texts.add(text(field));
        }
        json.path(field).forEach(each -> texts.add(each.asText()));
        return texts;
    }

    String[] names(String field) {
        return texts(field).toArray(new String[0]);
    }

    List<Node> nodes(String field) {
        List<Node> nodes = new ArrayList<>();
        json.path(field).forEach(each -> nodes.add(new Node(each)));
        return nodes;
    }

    Node node(String field) {
        return new Node(json.get(field));
    }

    long number(String field) {
        return json.path(field).asLong();
    }

    Duration duration(String field) {
        return Duration.ofMillis(number(field));
    }
}
