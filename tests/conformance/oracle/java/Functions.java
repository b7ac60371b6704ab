import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.function.UnaryOperator;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.kstream.ValueMapperWithKey;
import org.apache.kafka.streams.kstream.Windowed;

/** Functions of the cases (SPEC section 5): {@code [name, argument, ...]} to what Kafka Streams takes. */
final class Functions {

    private Functions() {}

    static Predicate<Object, Object> predicate(JsonNode reference) {
        Object x = Values.of(reference.get(1));
        return switch (reference.get(0).asText()) {
            case "always" -> (k, v) -> true;
            case "never" -> (k, v) -> false;
            case "value_is_null" -> (k, v) -> v == null;
            case "value_not_null" -> (k, v) -> v != null;
            case "key_is_null" -> (k, v) -> k == null;
            case "value_gt" -> (k, v) -> v != null && Values.isGreater(v, x);
            case "value_lt" -> (k, v) -> v != null && Values.isGreater(x, v);
            case "value_eq" -> (k, v) -> v != null && Values.areEqual(v, x);
            case "value_even" -> (k, v) -> v != null && Values.number(v).longValue() % 2 == 0;
            case "value_contains" -> (k, v) -> v != null && Values.text(v).contains((String) x);
            case "key_eq" -> (k, v) -> k != null && Values.text(k).equals(x);
            case "key_starts_with" -> (k, v) -> k != null && Values.text(k).startsWith((String) x);
            case "field_gt" -> {
                Object y = Values.of(reference.get(2));
                yield (k, v) -> {
                    Object field = Values.field(v, (String) x);
                    return field != null && Values.isGreater(field, y);
                };
            }
            case "field_eq" -> {
                Object y = Values.of(reference.get(2));
                yield (k, v) -> {
                    Object field = Values.field(v, (String) x);
                    return field != null && Values.areEqual(field, y);
                };
            }
            case "fail_on" -> (k, v) -> Values.unless(v, x, true);
            default -> throw unknown(reference);
        };
    }

    static ValueMapperWithKey<Object, Object, Object> mapper(JsonNode reference) {
        Object x = Values.of(reference.get(1));
        return switch (reference.get(0).asText()) {
            case "null_to" -> (k, v) -> v == null ? x : v;
            case "text_or_null" -> (k, v) -> Values.text(v);
            case "key_colon_value" -> (k, v) -> Values.text(k) + ":" + Values.text(v);
            case "chain" -> {
                List<ValueMapperWithKey<Object, Object, Object>> mappers = new ArrayList<>();
                for (JsonNode each : reference) {
                    if (each.isArray()) {
                        mappers.add(mapper(each));
                    }
                }
                yield (k, v) -> {
                    Object result = v;
                    for (ValueMapperWithKey<Object, Object, Object> each : mappers) {
                        result = each.apply(k, result);
                    }
                    return result;
                };
            }
            default -> {
                UnaryOperator<Object> ofValue = mapperOfValue(reference);
                yield (k, v) -> v == null ? null : ofValue.apply(v);
            }
        };
    }

    private static UnaryOperator<Object> mapperOfValue(JsonNode reference) {
        Object x = Values.of(reference.get(1));
        return switch (reference.get(0).asText()) {
            case "identity" -> v -> v;
            case "const" -> v -> x;
            case "to_null" -> v -> null;
            case "upper" -> v -> Values.text(v).toUpperCase(Locale.ROOT);
            case "append" -> v -> Values.text(v) + x;
            case "prepend" -> v -> x + Values.text(v);
            case "first_char" -> v -> Values.text(v).isEmpty() ? "" : Values.text(v).substring(0, 1);
            case "length" -> v -> (long) Values.text(v).length();
            case "to_text" -> Values::text;
            case "to_long" -> v -> v instanceof String text ? Long.parseLong(text) : Values.number(v).longValue();
            case "add" -> v -> Values.sum(Values.number(v), x);
            case "mul" -> v -> Values.product(v, x);
            case "mod" -> v -> Values.remainder(v, x);
            case "field" -> v -> Values.field(v, (String) x);
            case "wrap" -> v -> Values.JSON.createObjectNode().set((String) x, Values.json(v));
            case "null_if" -> v -> Values.areEqual(v, x) ? null : v;
            case "fail_on" -> v -> Values.unless(v, x, v);
            default -> throw unknown(reference);
        };
    }

    static KeyValueMapper<Object, Object, Object> keySelector(JsonNode reference) {
        Object x = Values.of(reference.get(1));
        return switch (reference.get(0).asText()) {
            case "key" -> (k, v) -> k;
            case "null" -> (k, v) -> null;
            case "const" -> (k, v) -> x;
            case "value_as_key" -> (k, v) -> textOrNull(v);
            case "first_char_of_value" -> (k, v) -> firstCharacter(v);
            case "first_char_of_key" -> (k, v) -> firstCharacter(k);
            case "field" -> (k, v) -> textOrNull(Values.field(v, (String) x));
            case "value_mod" -> (k, v) -> v == null ? null : Values.text(Values.remainder(v, x));
            case "key_append" -> (k, v) -> Values.text(k) + x;
            case "key_text" -> (k, v) -> textOrNull(k);
            case "unwindow" -> (k, v) -> k instanceof Windowed<?> windowed ? windowed.key() : k;
            case "window_start" -> (k, v) -> Values.text(((Windowed<?>) k).window().start());
            default -> throw unknown(reference);
        };
    }

    static ValueMapper<Object, Iterable<Object>> flatMapper(JsonNode reference) {
        return switch (reference.get(0).asText()) {
            case "repeat" -> v -> Collections.nCopies(reference.get(1).asInt(), v);
            case "words" -> v -> v == null ? List.of() : words(v);
            case "chars" -> v -> v == null ? List.of() : characters(v);
            case "items" -> v -> {
                List<Object> items = new ArrayList<>();
                if (v instanceof ArrayNode array) {
                    array.forEach(each -> items.add(Values.of(each)));
                }
                return items;
            };
            case "none" -> v -> List.of();
            default -> throw unknown(reference);
        };
    }

    static KeyValueMapper<Object, Object, Iterable<KeyValue<Object, Object>>> pairFlatMapper(JsonNode reference) {
        return switch (reference.get(0).asText()) {
            case "words_as_keys" -> (k, v) -> {
                List<KeyValue<Object, Object>> pairs = new ArrayList<>();
                if (v != null) {
                    words(v).forEach(word -> pairs.add(KeyValue.pair(word, v)));
                }
                return pairs;
            };
            case "both_ways" -> (k, v) -> List.of(KeyValue.pair(k, v), KeyValue.pair(textOrNull(v), textOrNull(k)));
            case "none" -> (k, v) -> List.of();
            default -> throw unknown(reference);
        };
    }

    static ValueJoinerWithKey<Object, Object, Object, Object> joiner(JsonNode reference) {
        Object x = Values.of(reference.get(1));
        return switch (reference.get(0).asText()) {
            case "concat_lr" -> (k, l, r) -> both(l, r);
            case "concat_klr" -> (k, l, r) -> Values.text(k) + ":" + both(l, r);
            case "left" -> (k, l, r) -> l;
            case "right" -> (k, l, r) -> r;
            case "sum" -> (k, l, r) -> Values.sum(l, r);
            case "pair" -> (k, l, r) -> {
                ObjectNode pair = Values.JSON.createObjectNode();
                pair.set("l", Values.json(l));
                pair.set("r", Values.json(r));
                return pair;
            };
            case "null_if_equal" -> (k, l, r) -> Values.areEqual(l, r) ? null : both(l, r);
            case "fail_on_right" -> (k, l, r) -> Values.unless(r, x, both(l, r));
            default -> throw unknown(reference);
        };
    }

    /** Serves as aggregator, reducer, adder, subtractor and session merger. */
    static Aggregator<Object, Object, Object> aggregator(JsonNode reference) {
        Object x = Values.of(reference.get(1));
        return switch (reference.get(0).asText()) {
            case "concat" -> (k, v, a) ->
                a == null || "".equals(a) ? Values.text(v) : Values.text(a) + x + Values.text(v);
            case "append_text" -> (k, v, a) -> textOrEmpty(a) + x + Values.text(v);
            case "concat_keyed" -> (k, v, a) -> textOrEmpty(a) + Values.text(k) + "=" + Values.text(v) + ";";
            case "sum" -> (k, v, a) -> Values.sum(a, v);
            case "subtract" -> (k, v, a) -> Values.difference(a, v);
            case "increment" -> (k, v, a) -> Values.sum(a == null ? 0L : a, x);
            case "max" -> (k, v, a) -> a == null || (v != null && Values.isGreater(v, a)) ? v : a;
            case "min" -> (k, v, a) -> a == null || (v != null && Values.isGreater(a, v)) ? v : a;
            case "last" -> (k, v, a) -> v;
            case "first" -> (k, v, a) -> a == null ? v : a;
            case "null" -> (k, v, a) -> null;
            case "sum_null_above" -> (k, v, a) -> {
                Object sum = Values.sum(a, v);
                return Values.isGreater(sum, x) ? null : sum;
            };
            case "append_list" -> (k, v, a) -> copyOf(a).add(Values.json(v));
            case "remove_list" -> (k, v, a) -> withoutFirst(copyOf(a), v);
            case "concat_list" -> (k, v, a) -> copyOf(a).addAll(copyOf(v));
            case "fail_on" -> (k, v, a) -> Values.sum(a, Values.unless(v, x, v));
            default -> throw unknown(reference);
        };
    }

    private static String both(Object left, Object right) {
        return Values.text(left) + "+" + Values.text(right);
    }

    private static String textOrNull(Object value) {
        return value == null ? null : Values.text(value);
    }

    private static String textOrEmpty(Object value) {
        return value == null ? "" : Values.text(value);
    }

    private static String firstCharacter(Object value) {
        return value == null || Values.text(value).isEmpty() ? null : Values.text(value).substring(0, 1);
    }

    private static List<Object> words(Object value) {
        List<Object> words = new ArrayList<>();
        for (String word : Values.text(value).split(" ")) {
            if (!word.isEmpty()) {
                words.add(word);
            }
        }
        return words;
    }

    private static List<Object> characters(Object value) {
        List<Object> characters = new ArrayList<>();
        for (char each : Values.text(value).toCharArray()) {
            characters.add(String.valueOf(each));
        }
        return characters;
    }

    /** An aggregate is never changed in place: a cache or an old value may still hold it. */
    private static ArrayNode copyOf(Object list) {
        ArrayNode copy = Values.JSON.createArrayNode();
        return list instanceof ArrayNode array ? copy.addAll(array) : copy;
    }

    private static ArrayNode withoutFirst(ArrayNode list, Object item) {
        for (int at = 0; at < list.size(); at++) {
            if (Values.areEqual(Values.of(list.get(at)), item)) {
                list.remove(at);
                break;
            }
        }
        return list;
    }

    private static BadCase unknown(JsonNode reference) {
        return new BadCase("unknown function " + reference);
    }
}
