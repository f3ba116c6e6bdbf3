// Reads flags through OpenFeature's SDK and its OFREP provider for Go. Reads one line of JSON, and prints one.
package main

import (
	"context"
	"log"

	"github.com/open-feature/go-sdk-contrib/providers/ofrep"
	"github.com/open-feature/go-sdk/openfeature"

	"remora.dev/clients/plan"
)

func client(domain, endpoint string, options ...ofrep.Option) *openfeature.Client {
	plan.Check(openfeature.SetNamedProviderAndWait(domain, ofrep.NewProvider(endpoint, options...)))
	return openfeature.NewClient(domain)
}

func contextOf(asked plan.Plan, name *string) openfeature.EvaluationContext {
	if name == nil {
		return openfeature.EvaluationContext{}
	}
	subject := asked.Subjects[*name]
	return openfeature.NewEvaluationContext(subject.Identifier, subject.Traits)
}

func told[T any](value T, details openfeature.EvaluationDetails) map[string]any {
	answer := map[string]any{"value": value, "reason": details.Reason}
	if details.ErrorCode != "" {
		answer["error"] = details.ErrorCode
	} else {
		answer["variant"] = details.Variant
	}
	return answer
}

// ask asks for a flag. The answer has the error, which each call returns a second time.
func ask(client *openfeature.Client, asked plan.Plan, question plan.Question) map[string]any {
	ctx, of := context.Background(), contextOf(asked, question.Subject)
	switch given := question.Default.(type) {
	case bool:
		details, _ := client.BooleanValueDetails(ctx, question.Flag, given, of)
		return told(details.Value, details.EvaluationDetails)
	case string:
		details, _ := client.StringValueDetails(ctx, question.Flag, given, of)
		return told(details.Value, details.EvaluationDetails)
	case float64:
		if question.Type == "integer" {
			details, _ := client.IntValueDetails(ctx, question.Flag, int64(given), of)
			return told(details.Value, details.EvaluationDetails)
		}
		details, _ := client.FloatValueDetails(ctx, question.Flag, given, of)
		return told(details.Value, details.EvaluationDetails)
	case map[string]any:
		details, _ := client.ObjectValueDetails(ctx, question.Flag, given, of)
		return told(details.Value, details.EvaluationDetails)
	}
	log.Fatal("no type: ", question)
	return nil
}

func main() {
	asked := plan.Read()
	// This version of the provider does not read the variable itself.
	endpoint := plan.Env("OFREP_ENDPOINT")
	plain := client("plain", endpoint)
	var questions []any
	for _, question := range asked.Questions {
		questions = append(questions, ask(plain, asked, question))
	}
	special, servers := "nobody special", "for servers"
	details, err := plain.IntValueDetails(context.Background(), "max_items", 0, contextOf(asked, &special))
	plan.Check(err)
	secret := plan.Question{Flag: "fraud_threshold", Type: "integer", Default: 1.0, Subject: &servers}
	first := asked.Questions[0]
	plan.Print(map[string]any{
		"questions":   questions,
		"metadata":    details.FlagMetadata,
		"server_key":  ask(client("server", endpoint, ofrep.WithApiKeyAuth(asked.ServerKey)), asked, secret),
		"wrong_key":   ask(client("wrong", endpoint, ofrep.WithApiKeyAuth("harbour-client-key-of-another")), asked, first),
		"server_down": ask(client("down", asked.Nobody), asked, first),
	})
}
