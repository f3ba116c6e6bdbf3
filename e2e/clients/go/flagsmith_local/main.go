// Asks Flagsmith's SDK for Go in local evaluation: it fetches the document, and evaluates by itself.
package main

import (
	"context"

	flagsmith "github.com/Flagsmith/flagsmith-go-client/v3"

	"remora.dev/clients/plan"
)

func main() {
	asked := plan.Read()
	ctx := context.Background()
	client := flagsmith.NewClient(
		asked.Key, flagsmith.WithBaseURL(plan.Env("FLAGSMITH_API_URL")), flagsmith.WithLocalEvaluation(ctx),
	)
	// The SDK fetches it on another goroutine, which nothing waits for.
	plan.Check(client.UpdateEnvironment(ctx))
	environment, err := client.GetEnvironmentFlags(ctx)
	plan.Check(err)
	anonymous, err := plan.Identity(client, asked.Anonymous)
	plan.Check(err)
	plan.Print(map[string]any{
		"environment": plan.Pairs(environment),
		"identities":  plan.Identities(client, asked.Subjects),
		"anonymous":   plan.Pairs(anonymous),
	})
}
