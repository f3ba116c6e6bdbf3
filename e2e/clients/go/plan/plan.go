// Package plan reads what to ask, and prints answers, one line of JSON each.
package plan

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
)

// Subject is an identity with its traits.
type Subject struct {
	Identifier string         `json:"identifier"`
	Traits     map[string]any `json:"traits"`
}

// Question asks an OFREP provider for a flag.
type Question struct {
	Flag    string  `json:"flag"`
	Type    string  `json:"type"`
	Default any     `json:"default"`
	Subject *string `json:"subject"`
}

// Plan is what a test asks of a client.
type Plan struct {
	Key       string             `json:"key"`
	ServerKey string             `json:"server_key"`
	Nobody    string             `json:"nobody"`
	Subjects  map[string]Subject `json:"subjects"`
	Anonymous Subject            `json:"anonymous"`
	Questions []Question         `json:"questions"`
}

// Lines are the lines of standard input.
var Lines = bufio.NewScanner(os.Stdin)

// Read reads the plan, which is the first line.
func Read() Plan {
	Lines.Buffer(nil, 1<<20)
	if !Lines.Scan() {
		log.Fatal("standard input has no line with what to ask")
	}
	var plan Plan
	Check(json.Unmarshal(Lines.Bytes(), &plan))
	return plan
}

// Print prints a line with answers.
func Print(answers any) {
	line, err := json.Marshal(answers)
	Check(err)
	fmt.Printf("answers %s\n", line)
}

// Check ends the program if there is an error.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Env returns an environment variable, which must be set.
func Env(name string) string {
	value, found := os.LookupEnv(name)
	if !found {
		log.Fatal(name, " is not set")
	}
	return value
}
