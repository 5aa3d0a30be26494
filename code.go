package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
)

// CodeTool makes the tool run_code, with which the model runs a program on r in
// any of the languages that r has ([Environment]), and reads its [Result]. It is
// [PythonTool] in all else.
//
// The schema names exactly the languages of r. Of an [Inspector] they are known
// once the tool is used in a Loop; until then it names Python alone.
func CodeTool(r Runner, limits Limits) Tool {
	type input struct {
		Language string `json:"language" jsonschema_description:"What the program is written in."`
		Code     string `json:"code" jsonschema_description:"A whole program. It is run as a file, so print what you want to see."`
	}
	tool := MustTool("run_code", "", func(ctx context.Context, in input) (Output, error) {
		return runProgram(ctx, r, Program{Source: in.Code, Language: in.Language, Limits: limits})
	})
	tool.runsOn(r, limits, describeCode)
	return tool
}

// hints are what a model has to know of a language to write one file of it.
var hints = map[string]string{
	LanguageTypeScript: "Types of TypeScript are not checked.",
	LanguageJava:       "Of Java, the first class in the file has main.",
	LanguageGo:         "A program of Go is one file of package main.",
}

// describeCode is what the tool, whose schema names no languages yet, says of its
// sandbox. The runner refuses any other language, and says what it has.
func describeCode(env *Environment, limits Limits, t Tool) toolText {
	languages := []Language{{Name: LanguagePython}}
	var rest string
	if env != nil {
		if len(env.Languages) > 0 {
			languages = env.Languages
		} else {
			languages[0].Version = env.Python
		}
		rest = describeNetwork(*env)
		if len(env.Packages) > 0 {
			rest += " Beside its standard library Python has these packages: " + strings.Join(env.Packages, ", ") + "."
		}
		if len(languages) > 1 {
			rest += " Of the other languages only the standard libraries are sure to be there."
		}
		rest += describeRoom(*env)
	}
	var names, shown, said []string
	for _, l := range languages {
		names = append(names, l.Name)
		if l.Version != "" {
			shown = append(shown, l.Name+" ("+l.Version+")")
		} else {
			shown = append(shown, l.Name)
		}
		if hint := hints[l.Name]; hint != "" {
			said = append(said, " "+hint)
		}
	}
	text := "Runs a program" + programIntro[len(" program"):] + " It can be written in " + strings.Join(shown, ", ") + "." +
		strings.Join(said, "") + rest + describeLimits(env, limits)
	if len(said) > 0 && strings.Contains(text, "may run for") {
		text += " Compiling is part of its time."
	}
	enum, _ := json.Marshal(names) // strings
	return toolText{
		description: text + programRest,
		parameters:  bytes.Replace(t.Parameters, []byte(`"language":{`), append([]byte(`"language":{"enum":`), append(enum, ',')...), 1),
	}
}
