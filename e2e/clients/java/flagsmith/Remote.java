import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.flagsmith.FlagsmithClient;
import com.flagsmith.config.FlagsmithConfig;
import com.flagsmith.exceptions.FlagsmithClientError;
import com.flagsmith.models.BaseFlag;
import com.flagsmith.models.DefaultFlag;
import com.flagsmith.models.Flag;
import com.flagsmith.models.Flags;
import com.flagsmith.models.TraitConfig;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;

/** Reads flags through Flagsmith's SDK for Java, in remote evaluation. Reads one line of JSON, and prints one. */
class Remote {
  static final ObjectMapper JSON = new ObjectMapper();

  static FlagsmithClient client(String key, String url, boolean analytics, boolean handled) {
    var builder = FlagsmithClient.newBuilder().setApiKey(key).withApiUrl(url);
    if (analytics) {
      builder.withConfiguration(FlagsmithConfig.newBuilder().baseUri(url).withEnableAnalytics(true).build());
    }
    return (handled ? builder.setDefaultFlagValueFunction(Remote::inDefault) : builder).build();
  }

  static BaseFlag inDefault(String name) {
    var flag = new DefaultFlag();
    flag.setFeatureName(name);
    flag.setEnabled(false);
    flag.setValue("default of " + name);
    return flag;
  }

  static JsonNode pair(BaseFlag flag) {
    return JSON.createArrayNode().add(flag.getEnabled()).add(JSON.<JsonNode>valueToTree(flag.getValue()));
  }

  static JsonNode told(BaseFlag flag) {
    return ((ArrayNode) pair(flag)).add(isDefault(flag));
  }

  static boolean isDefault(BaseFlag flag) {
    return flag instanceof DefaultFlag;
  }

  static ObjectNode pairs(Flags flags) {
    var pairs = JSON.createObjectNode();
    flags.getAllFlags().forEach(flag -> pairs.set(flag.getFeatureName(), pair(flag)));
    return pairs;
  }

  static Flags identity(FlagsmithClient flagsmith, JsonNode subject) throws FlagsmithClientError {
    var isTransient = subject.path("transient").asBoolean();
    Map<String, Object> traits = new HashMap<>();
    subject.path("traits").fields().forEachRemaining(field -> {
      var value = JSON.convertValue(field.getValue(), Object.class);
      traits.put(field.getKey(), isTransient ? new TraitConfig(value, true) : value);
    });
    return flagsmith.getIdentityFlags(subject.path("identifier").asText(), traits, isTransient);
  }

  interface Ask {
    Object ask() throws FlagsmithClientError;
  }

  static String failure(Ask ask) {
    try {
      ask.ask();
      return null;
    } catch (FlagsmithClientError | RuntimeException error) {
      return error.getClass().getSimpleName();
    }
  }

  /** Returns what an application gets if no flags can be fetched: with a default handler, and without one. */
  static ObjectNode failing(String key, String url) throws FlagsmithClientError {
    var handled = client(key, url, false, true);
    var bare = client(key, url, false, false);
    return JSON.createObjectNode()
        .<ObjectNode>set("environment", told(handled.getEnvironmentFlags().getFlag("max_items")))
        .<ObjectNode>set("identity", told(handled.getIdentityFlags("guest-10").getFlag("max_items")))
        .put("environment_without", failure(bare::getEnvironmentFlags))
        .put("identity_without", failure(() -> bare.getIdentityFlags("guest-10")));
  }

  public static void main(String[] arguments) throws Exception {
    // After a failure, threads of the SDK would keep the process alive.
    Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
      failure.printStackTrace();
      System.exit(1);
    });
    var plan = JSON.readTree(new BufferedReader(new InputStreamReader(System.in, UTF_8)).readLine());
    var key = plan.path("key").asText();
    var url = System.getenv("FLAGSMITH_API_URL");

    var flagsmith = client(key, url, false, false);
    var environment = flagsmith.getEnvironmentFlags();
    var one = (Flag) environment.getFlag("max_items");
    var identities = JSON.createObjectNode();
    for (var subjects = plan.path("subjects").fields(); subjects.hasNext(); ) {
      var subject = subjects.next();
      identities.set(subject.getKey(), pairs(identity(flagsmith, subject.getValue())));
    }
    var anonymous = ((ObjectNode) plan.path("anonymous").deepCopy()).put("identifier", "");
    var refused = failure(() -> identity(flagsmith, anonymous));

    var counted = client(key, url, true, false).getIdentityFlags("guest-2");
    var countedValue = JSON.createArrayNode().add(counted.isFeatureEnabled("search_ranking"));
    countedValue.add(JSON.<JsonNode>valueToTree(counted.getFeatureValue("search_ranking")));
    // The SDK sends the counts on another thread, and this program does not wait for it.
    counted.getAnalyticsProcessor().flush();

    var unknown = client(key, url, false, true).getEnvironmentFlags().getFlag("unheard_of");
    var answers = JSON.createObjectNode();
    answers.set("environment", pairs(environment));
    answers.set("one", JSON.createArrayNode().add(one.getFeatureId()).add(one.getFeatureName()).add(one.getEnabled())
        .add(JSON.<JsonNode>valueToTree(one.getValue())).add(isDefault(one)));
    answers.put("enabled", environment.isFeatureEnabled("dark_mode"));
    answers.set("value", JSON.valueToTree(environment.getFeatureValue("surge_pricing")));
    answers.set("identities", identities);
    // This SDK refuses an empty identifier.
    answers.putNull("anonymous").put("anonymous_refused", refused);
    answers.set("unknown", told(unknown));
    answers.put("unknown_without", failure(() -> environment.getFlag("unheard_of")));
    answers.set("wrong_key", failing("harbour-client-key-of-another", url));
    answers.set("server_down", failing(key, plan.path("nobody").asText() + "/api/v1/"));
    answers.set("analytics", countedValue);
    new PrintStream(System.out, true, UTF_8).println("answers " + answers);
    // The test ends this program when the counts have arrived.
    System.in.read();
    System.exit(0);
  }
}
