import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/**
 * Answers what the real Kafka Streams does in a case of tests/conformance/data/SPEC.md.
 *
 * <p>Usage: java Oracle FOLDER. Each line of the standard input is a case, each line of the standard output the result
 * of the case in the same place; {@code {"oracle_failed": text}} if there is none. State is kept in the folder while a
 * case runs.
 */
public final class Oracle {

    private Oracle() {}

    public static void main(String[] arguments) throws IOException {
        Path folder = Path.of(arguments[0]);
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream results = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            results.println(Values.JSON.writeValueAsString(answer(line, folder)));
        }
    }

    private static ObjectNode answer(String line, Path folder) throws IOException {
        Path state = Files.createTempDirectory(folder, "case");
        try {
            return CaseRun.of(new Node(Values.JSON.readTree(line)), state);
        } catch (Throwable failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            return Values.JSON.createObjectNode().put("oracle_failed", trace.toString());
        } finally {
            delete(state);
        }
    }

    private static void delete(Path folder) throws IOException {
        List<Path> leavesFirst;
        try (Stream<Path> all = Files.walk(folder)) {
            leavesFirst = all.sorted(Comparator.reverseOrder()).toList();
        }
        for (Path each : leavesFirst) {
            Files.deleteIfExists(each);
        }
    }
}
