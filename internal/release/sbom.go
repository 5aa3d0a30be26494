package main

import (
	"encoding/json"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fnloop/fnloop/internal/version"
)

// A bill is a bill of materials in the JSON of CycloneDX 1.6, with those of its
// members that are known of a Go program:
// https://cyclonedx.org/docs/1.6/json/
type bill struct {
	Schema      string      `json:"$schema"`
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// billOfMaterials lists what a program is linked from: the modules that the
// linker wrote into it, with the sums of go.sum, and the standard library.
func billOfMaterials(info *debug.BuildInfo, changed time.Time) ([]byte, error) {
	main := module(debug.Module{Path: info.Main.Path, Version: "v" + version.Version})
	main.Type = "application"
	b := bill{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{Timestamp: changed.Format(time.RFC3339), Component: main},
		// The standard library's name among package URLs is std, without the
		// "go" of its version.
		Components: []component{module(debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})},
	}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		b.Components = append(b.Components, module(*dep))
	}
	data, err := json.MarshalIndent(b, "", "  ")
	return append(data, '\n'), err
}

func module(m debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum != "" { // not a hash of a file, so no member hashes
		c.Properties = []property{{"go.sum", m.Sum}}
	}
	return c
}
