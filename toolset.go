package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

// A toolset is a Loop's tools as they were when they were checked, and the form
// in which requests list them. It holds no handler, since it outlives the runs.
type toolset struct {
	tools  []checkedTool
	params []responses.ToolUnionParam
	json   []byte // of params
}

// A checkedTool is what a check of a Tool looks at.
type checkedTool struct {
	name, description, schema string
	noSchema                  bool // Parameters are nil
	nonStrict, custom, async  bool
	grammar                   *Grammar
}

// toolsets has the toolset of each list of tools that is in use, by its first
// element: the copies of a Loop share it. It keeps no list alive.
var toolsets sync.Map // weak.Pointer[Tool] to *toolset

// toolset returns l's tools, checked. It checks them once and then only
// compares.
func (l *Loop) toolset(ctx context.Context) (*toolset, error) {
	if len(l.Tools) == 0 {
		return &toolset{}, nil
	}
	key := weak.Make(&l.Tools[0])
	if known, ok := toolsets.Load(key); ok && known.(*toolset).is(l.Tools) {
		return known.(*toolset), nil
	}
	s, err := newToolset(ctx, l.Tools)
	if err != nil {
		return nil, err
	}
	if _, known := toolsets.Swap(key, s); !known {
		runtime.AddCleanup(&l.Tools[0], func(key weak.Pointer[Tool]) { toolsets.Delete(key) }, key)
	}
	return s, nil
}

func newToolset(ctx context.Context, tools []Tool) (*toolset, error) {
	const maxTools = 128 // what the API takes in one request
	if len(tools) > maxTools {
		return nil, &ConfigError{Field: "Loop.Tools", Reason: fmt.Sprintf("%d are more than the %d that a request may list", len(tools), maxTools)}
	}
	s := &toolset{tools: make([]checkedTool, len(tools)), params: make([]responses.ToolUnionParam, len(tools))}
	byName := make(map[string]int, len(tools))
	for i := range tools {
		t := &tools[i]
		field := fmt.Sprintf("Loop.Tools[%d]", i)
		if err := t.check(field); err != nil {
			return nil, err
		}
		if j, taken := byName[t.Name]; taken {
			return nil, &ConfigError{Field: field + ".Name", Reason: fmt.Sprintf("%q is the name of Tools[%d] too", t.Name, j)}
		}
		byName[t.Name] = i
		description, parameters := t.Description, t.Parameters
		if t.inspection != nil {
			found, err := t.inspection.ask(ctx)
			if err != nil {
				return nil, &ConfigError{Field: field + " (" + t.Name + ")", Reason: "its runner does not work: " + bare(err), Err: err}
			}
			description, parameters = found.complete(t)
		}
		s.tools[i] = t.checkedAs(description, parameters)
		top, err := t.topLevel(parameters)
		if err != nil {
			return nil, &ConfigError{Field: field + ".Parameters", Reason: err.Error()}
		}
		s.params[i] = s.tools[i].param(top)
	}
	var err error
	if s.json, err = toolsJSON(s.params); err != nil {
		return nil, &ConfigError{Field: "Loop.Tools", Reason: err.Error(), Err: err}
	}
	return s, nil
}

// toolsJSON is the list as openai-go writes it.
func toolsJSON(list []responses.ToolUnionParam) ([]byte, error) {
	all := make([][]byte, len(list))
	for i := range list {
		var err error
		if all[i], err = list[i].MarshalJSON(); err != nil {
			return nil, err
		}
	}
	return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]")), nil
}

// is reports whether s is what tools would be made into.
func (s *toolset) is(tools []Tool) bool {
	if len(s.tools) != len(tools) {
		return false
	}
	for i := range tools {
		t := &tools[i]
		description, parameters := t.Description, t.Parameters
		if t.inspection != nil {
			found, ok := t.inspection.known()
			if !ok {
				return false
			}
			description, parameters = found.complete(t)
		}
		c := &s.tools[i]
		if t.err != nil || t.Handle == nil || c.name != t.Name || c.description != description || c.schema != string(parameters) ||
			c.noSchema != (parameters == nil) || c.nonStrict != t.NonStrict || c.custom != t.Custom || c.async != t.Async ||
			(c.grammar == nil) != (t.Grammar == nil) || c.grammar != nil && *c.grammar != *t.Grammar {
			return false
		}
	}
	return true
}

func (t *Tool) checkedAs(description string, parameters json.RawMessage) checkedTool {
	c := checkedTool{
		name: t.Name, description: description, schema: string(parameters), noSchema: parameters == nil,
		nonStrict: t.NonStrict, custom: t.Custom, async: t.Async,
	}
	if t.Grammar != nil {
		g := *t.Grammar
		c.grammar = &g
	}
	return c
}

// list is the tools for one request, which may edit them. What is below the
// first level of a schema is shared, and the maps of that level too unless own
// is set.
func (s *toolset) list(own bool) []responses.ToolUnionParam {
	if len(s.params) == 0 {
		return nil
	}
	list := make([]responses.ToolUnionParam, len(s.params))
	functions := make([]responses.FunctionToolParam, len(s.params))
	for i, p := range s.params {
		if p.OfCustom != nil {
			custom := *p.OfCustom
			if custom.Format.OfGrammar != nil {
				grammar := *custom.Format.OfGrammar
				custom.Format.OfGrammar = &grammar
			}
			list[i].OfCustom = &custom
			continue
		}
		functions[i] = *p.OfFunction
		if own {
			functions[i].Parameters = maps.Clone(functions[i].Parameters)
		}
		list[i].OfFunction = &functions[i]
	}
	return list
}

func (t *checkedTool) param(top map[string]any) responses.ToolUnionParam {
	var description param.Opt[string]
	if t.description != "" {
		description = param.NewOpt(t.description)
	}
	var async param.Opt[bool]
	if t.async {
		async = param.NewOpt(true)
	}
	if !t.custom {
		return responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
			Name: t.name, Description: description, Parameters: top, Strict: param.NewOpt(!t.nonStrict), Async: async,
		}}
	}
	c := &responses.CustomToolParam{Name: t.name, Description: description, Async: async}
	if g := t.grammar; g != nil {
		c.Format.OfGrammar = &shared.CustomToolInputFormatGrammarParam{Syntax: g.Syntax, Definition: g.Definition}
	}
	return responses.ToolUnionParam{OfCustom: c}
}

// noParameters is the schema of a tool without Parameters.
var noParameters = json.RawMessage(`{"type":"object","properties":{},"required":[],"additionalProperties":false}`)

// topLevel is the first level of the tool's schema; nil for a custom tool.
func (t *Tool) topLevel(parameters json.RawMessage) (map[string]any, error) {
	switch {
	case t.Custom:
		return nil, nil
	case parameters == nil:
		return topLevel(noParameters)
	case t.args != nil && t.args.schema == string(parameters):
		return t.args.top, nil
	}
	return topLevel(parameters)
}

// topLevel decodes one level of a schema, because openai-go wants a map. What is
// below stays as it is, so that the properties keep their order.
func topLevel(schema json.RawMessage) (map[string]any, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(top))
	for key, value := range top {
		out[key] = value
	}
	return out, nil
}

// bare is the text of err for a place within another error of this package.
func bare(err error) string { return strings.TrimPrefix(err.Error(), "fnloop: ") }
