// Loads a compose file as Docker Compose does, and prints the result as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithOsEnv, cli.WithProfiles([]string{"*"}))
	if err == nil {
		project, failure := options.LoadProject(context.Background())
		err = failure
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(project)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
