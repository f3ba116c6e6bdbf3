package plan

import (
	"context"

	flagsmith "github.com/Flagsmith/flagsmith-go-client/v3"
)

// Pairs returns enabled state and value of each flag, by name.
func Pairs(flags flagsmith.Flags) map[string]any {
	pairs := map[string]any{}
	for _, flag := range flags.AllFlags() {
		pairs[flag.FeatureName] = []any{flag.Enabled, flag.Value}
	}
	return pairs
}

// Identity asks for the flags of a subject.
func Identity(client *flagsmith.Client, subject Subject) (flagsmith.Flags, error) {
	var traits []*flagsmith.Trait
	for name, value := range subject.Traits {
		traits = append(traits, &flagsmith.Trait{TraitKey: name, TraitValue: value})
	}
	return client.GetIdentityFlags(context.Background(), subject.Identifier, traits)
}

// Identities asks for the flags of each subject.
func Identities(client *flagsmith.Client, subjects map[string]Subject) map[string]any {
	answers := map[string]any{}
	for name, subject := range subjects {
		flags, err := Identity(client, subject)
		Check(err)
		answers[name] = Pairs(flags)
	}
	return answers
}
