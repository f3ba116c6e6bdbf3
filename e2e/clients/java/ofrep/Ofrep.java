import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.common.collect.ImmutableList;
import com.google.common.collect.ImmutableMap;
import dev.openfeature.contrib.providers.ofrep.OfrepProvider;
import dev.openfeature.contrib.providers.ofrep.OfrepProviderOptions;
import dev.openfeature.sdk.Client;
import dev.openfeature.sdk.EvaluationContext;
import dev.openfeature.sdk.FlagEvaluationDetails;
import dev.openfeature.sdk.ImmutableContext;
import dev.openfeature.sdk.OpenFeatureAPI;
import dev.openfeature.sdk.Structure;
import dev.openfeature.sdk.Value;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.Map;

/** Reads flags through OpenFeature's SDK and its OFREP provider for Java. Reads one line of JSON, and prints one. */
class Ofrep {
  static final ObjectMapper JSON = new ObjectMapper();

  static Client client(String domain, String baseUrl, String key) throws Exception {
    var options = OfrepProviderOptions.builder().baseUrl(baseUrl);
    if (key != null) {
      options.headers(ImmutableMap.of("X-API-Key", ImmutableList.of(key)));
    }
    var api = OpenFeatureAPI.getInstance();
    api.setProviderAndWait(domain, OfrepProvider.constructProvider(options.build()));
    return api.getClient(domain);
  }

  @SuppressWarnings("unchecked")
  static EvaluationContext context(JsonNode plan, JsonNode name) {
    if (!name.isTextual()) {
      return new ImmutableContext();
    }
    var subject = plan.path("subjects").path(name.asText());
    Map<String, Value> attributes = new HashMap<>();
    if (subject.has("traits")) {
      Map<String, Object> traits = JSON.convertValue(subject.path("traits"), Map.class);
      attributes.putAll(Structure.mapToStructure(traits).asMap());
    }
    return new ImmutableContext(subject.path("identifier").asText(), attributes);
  }

  static ObjectNode told(FlagEvaluationDetails<?> details) {
    Object value = details.getValue();
    if (value instanceof Value given) {
      value = given.isStructure() ? given.asStructure().asObjectMap() : given.asObject();
    }
    var told = JSON.createObjectNode();
    told.set("value", JSON.valueToTree(value));
    told.put("reason", details.getReason());
    return details.getErrorCode() == null
        ? told.put("variant", details.getVariant())
        : told.put("error", details.getErrorCode().name());
  }

  @SuppressWarnings("unchecked")
  static ObjectNode ask(Client client, JsonNode plan, JsonNode question) {
    var flag = question.path("flag").asText();
    var given = question.path("default");
    var context = context(plan, question.path("subject"));
    return switch (question.path("type").asText()) {
      case "boolean" -> told(client.getBooleanDetails(flag, given.asBoolean(), context));
      case "string" -> told(client.getStringDetails(flag, given.asText(), context));
      case "integer" -> told(client.getIntegerDetails(flag, given.asInt(), context));
      case "float" -> told(client.getDoubleDetails(flag, given.asDouble(), context));
      case "object" -> {
        Map<String, Object> members = JSON.convertValue(given, Map.class);
        yield told(client.getObjectDetails(flag, new Value(Structure.mapToStructure(members)), context));
      }
      default -> throw new IllegalArgumentException("no type: " + question);
    };
  }

  public static void main(String[] arguments) throws Exception {
    // After a failure, threads of the SDK would keep the process alive.
    Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
      failure.printStackTrace();
      System.exit(1);
    });
    var plan = JSON.readTree(new BufferedReader(new InputStreamReader(System.in, UTF_8)).readLine());
    // This version of the provider does not read the variable itself.
    var endpoint = System.getenv("OFREP_ENDPOINT");
    var plain = client("plain", endpoint, null);
    var questions = JSON.createArrayNode();
    plan.path("questions").forEach(question -> questions.add(ask(plain, plan, question)));
    var first = plan.path("questions").path(0);
    var secret = JSON.readTree(
        "{\"flag\": \"fraud_threshold\", \"type\": \"integer\", \"default\": 1, \"subject\": \"for servers\"}");
    var nobody = context(plan, JSON.valueToTree("nobody special"));
    var metadata = plain.getIntegerDetails("max_items", 0, nobody).getFlagMetadata();

    var answers = JSON.createObjectNode();
    answers.set("questions", questions);
    answers.putObject("metadata").put("featureId", metadata.getInteger("featureId")).put("enabled", metadata.getBoolean("enabled"));
    answers.set("server_key", ask(client("server", endpoint, plan.path("server_key").asText()), plan, secret));
    answers.set("wrong_key", ask(client("wrong", endpoint, "harbour-client-key-of-another"), plan, first));
    answers.set("server_down", ask(client("down", plan.path("nobody").asText(), null), plan, first));
    new PrintStream(System.out, true, UTF_8).println("answers " + answers);
    System.exit(0);
  }
}
