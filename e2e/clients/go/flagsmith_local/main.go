// Reads flags through Flagsmith's SDK for Go in local evaluation: the SDK fetches the document, and evaluates in this
// process.
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
	// The SDK fetches the document on another goroutine, and does not wait for it.
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
