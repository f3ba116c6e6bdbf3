import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.flagsmith.FlagsmithClient;
import com.flagsmith.config.FlagsmithConfig;
import com.flagsmith.models.Flags;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Map;

/** Reads flags through Flagsmith's SDK for Java in local evaluation: the SDK fetches the document, and evaluates it. */
class Local {
  static final ObjectMapper JSON = new ObjectMapper();

  static ObjectNode pairs(Flags flags) {
    var pairs = JSON.createObjectNode();
    flags.getAllFlags().forEach(flag -> {
      var pair = JSON.createArrayNode().add(flag.getEnabled()).add(JSON.<JsonNode>valueToTree(flag.getValue()));
      pairs.set(flag.getFeatureName(), pair);
    });
    return pairs;
  }

  @SuppressWarnings("unchecked")
  static ObjectNode identity(FlagsmithClient flagsmith, JsonNode subject) throws Exception {
    var traits = subject.has("traits") ? JSON.convertValue(subject.path("traits"), Map.class) : Map.of();
    return pairs(flagsmith.getIdentityFlags(subject.path("identifier").asText(), traits));
  }

  public static void main(String[] arguments) throws Exception {
    // After a failure, threads of the SDK would keep the process alive.
    Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
      failure.printStackTrace();
      System.exit(1);
    });
    var plan = JSON.readTree(new BufferedReader(new InputStreamReader(System.in, UTF_8)).readLine());
    var configuration =
        FlagsmithConfig.newBuilder().baseUri(System.getenv("FLAGSMITH_API_URL")).withLocalEvaluation(true).build();
    var flagsmith =
        FlagsmithClient.newBuilder().setApiKey(plan.path("key").asText()).withConfiguration(configuration).build();
    // The SDK fetches the document on another thread.
    flagsmith.updateEnvironment();
    var identities = JSON.createObjectNode();
    for (var subjects = plan.path("subjects").fields(); subjects.hasNext(); ) {
      var subject = subjects.next();
      identities.set(subject.getKey(), identity(flagsmith, subject.getValue()));
    }
    var answers = JSON.createObjectNode();
    answers.set("environment", pairs(flagsmith.getEnvironmentFlags()));
    answers.set("identities", identities);
    answers.set("anonymous", identity(flagsmith, plan.path("anonymous")));
    new PrintStream(System.out, true, UTF_8).println("answers " + answers);
    System.exit(0);
  }
}
