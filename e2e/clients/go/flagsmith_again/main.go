// Reads flags through Flagsmith's SDK for Go, and again for each further line of input, with the same client and its
// connections.
package main

import (
	flagsmith "github.com/Flagsmith/flagsmith-go-client/v3"

	"remora.dev/clients/plan"
)

func main() {
	asked := plan.Read()
	client := flagsmith.NewClient(asked.Key, flagsmith.WithBaseURL(plan.Env("FLAGSMITH_API_URL")))
	for {
		flags, err := plan.Identity(client, plan.Subject{Identifier: asked.Subjects["nobody special"].Identifier})
		plan.Check(err)
		flag, err := flags.GetFlag("max_items")
		plan.Check(err)
		plan.Print(map[string]any{"flag": []any{flag.Enabled, flag.Value}})
		if !plan.Lines.Scan() {
			return
		}
	}
}
