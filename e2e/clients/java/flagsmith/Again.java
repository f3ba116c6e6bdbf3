import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.flagsmith.FlagsmithClient;
import com.flagsmith.config.FlagsmithConfig;
import com.flagsmith.config.Retry;
import java.io.BufferedReader;
import java.io.InputStreamReader;

/**
 * Reads flags through Flagsmith's SDK for Java, and again for each further line of input, with the same client and its
 * connections. The client does not retry.
 */
class Again {
  public static void main(String[] arguments) throws Exception {
    // After a failure, threads of the SDK would keep the process alive.
    Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> {
      failure.printStackTrace();
      System.exit(1);
    });
    var json = new ObjectMapper();
    var lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
    var plan = json.readTree(lines.readLine());
    var configuration =
        FlagsmithConfig.newBuilder().baseUri(System.getenv("FLAGSMITH_API_URL")).retries(new Retry(1)).build();
    var flagsmith =
        FlagsmithClient.newBuilder().setApiKey(plan.path("key").asText()).withConfiguration(configuration).build();
    var identifier = plan.path("subjects").path("nobody special").path("identifier").asText();
    do {
      var flag = flagsmith.getIdentityFlags(identifier).getFlag("max_items");
      var pair = json.createArrayNode().add(flag.getEnabled()).add(json.<JsonNode>valueToTree(flag.getValue()));
      System.out.println("answers " + json.createObjectNode().set("flag", pair));
    } while (lines.readLine() != null);
    System.exit(0);
  }
}
