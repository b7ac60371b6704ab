//go:build tools

// Package axonops says what is built of the modules in go.mod: `make lock` finds what that needs.
package axonops

import _ "github.com/axonops/axonops-schema-registry/cmd/schema-registry"
