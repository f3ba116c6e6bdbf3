// Reads flags through Flagsmith's SDK for Go, in remote evaluation. Reads one line of JSON, and prints one.
package main

import (
	"context"
	"fmt"

	flagsmith "github.com/Flagsmith/flagsmith-go-client/v3"

	"remora.dev/clients/plan"
)

func inDefault(name string) (flagsmith.Flag, error) {
	return flagsmith.Flag{FeatureName: name, Value: "default of " + name, IsDefault: true}, nil
}

func told(flags flagsmith.Flags, name string) []any {
	flag, err := flags.GetFlag(name)
	plan.Check(err)
	return []any{flag.Enabled, flag.Value, flag.IsDefault}
}

// kind returns the type of an error.
func kind(err error) any {
	if err == nil {
		return nil
	}
	return fmt.Sprintf("%T", err)
}

// failing returns what an application gets if no flags can be fetched: with a default handler, and without one.
func failing(key, url string) map[string]any {
	ctx := context.Background()
	handled := flagsmith.NewClient(key, flagsmith.WithBaseURL(url), flagsmith.WithDefaultHandler(inDefault))
	environment, err := handled.GetEnvironmentFlags(ctx)
	plan.Check(err)
	identity, err := handled.GetIdentityFlags(ctx, "guest-10", nil)
	plan.Check(err)
	bare := flagsmith.NewClient(key, flagsmith.WithBaseURL(url))
	_, ofEnvironment := bare.GetEnvironmentFlags(ctx)
	_, ofIdentity := bare.GetIdentityFlags(ctx, "guest-10", nil)
	return map[string]any{
		"environment":         told(environment, "max_items"),
		"identity":            told(identity, "max_items"),
		"environment_without": kind(ofEnvironment),
		"identity_without":    kind(ofIdentity),
	}
}

func main() {
	asked := plan.Read()
	url := plan.Env("FLAGSMITH_API_URL")
	ctx := context.Background()

	client := flagsmith.NewClient(asked.Key, flagsmith.WithBaseURL(url))
	environment, err := client.GetEnvironmentFlags(ctx)
	plan.Check(err)
	one, err := environment.GetFlag("max_items")
	plan.Check(err)
	enabled, err := environment.IsFeatureEnabled("dark_mode")
	plan.Check(err)
	value, err := environment.GetFeatureValue("surge_pricing")
	plan.Check(err)
	nobody := asked.Anonymous
	nobody.Identifier = ""
	anonymous, err := plan.Identity(client, nobody)
	plan.Check(err)
	_, unknown := environment.GetFlag("unheard_of")
	handled := flagsmith.NewClient(asked.Key, flagsmith.WithBaseURL(url), flagsmith.WithDefaultHandler(inDefault))
	withDefault, err := handled.GetEnvironmentFlags(ctx)
	plan.Check(err)

	counting := flagsmith.NewClient(asked.Key, flagsmith.WithBaseURL(url), flagsmith.WithAnalytics(ctx))
	counted, err := counting.GetIdentityFlags(ctx, "guest-2", nil)
	plan.Check(err)
	isCounted, err := counted.IsFeatureEnabled("search_ranking")
	plan.Check(err)
	countedValue, err := counted.GetFeatureValue("search_ranking")
	plan.Check(err)

	plan.Print(map[string]any{
		"environment":     plan.Pairs(environment),
		"one":             []any{one.FeatureID, one.FeatureName, one.Enabled, one.Value, one.IsDefault},
		"enabled":         enabled,
		"value":           value,
		"identities":      plan.Identities(client, asked.Subjects),
		"anonymous":       plan.Pairs(anonymous),
		"unknown":         told(withDefault, "unheard_of"),
		"unknown_without": kind(unknown),
		"wrong_key":       failing("harbour-client-key-of-another", url),
		"server_down":     failing(asked.Key, asked.Nobody+"/api/v1/"),
		"analytics":       []any{isCounted, countedValue},
	})
	// The SDK sends its counts every ten seconds. The test ends this program when the counts have arrived.
	plan.Lines.Scan()
}
