package fnloop

import (
	"encoding/json"

	"github.com/openai/openai-go/v3/responses"
)

// offers are the names of the tools that an edited request lets the model call,
// or nil where it holds what cannot be told from here. Tools are offered by the
// request's list, within namespaces of it, and by items of the conversation that
// load them.
func (r *run) offers(p *responses.ResponseNewParams) map[string]bool {
	names := make(map[string]bool)
	if choice, _ := json.Marshal(p.ToolChoice); string(choice) == `"none"` {
		return names
	}
	found := offeredTools{names: names, spaces: make(map[string][]string)}
	found.add(p.Tools)
	for _, in := range p.Input.OfInputItemList {
		switch {
		case in.OfAdditionalTools != nil:
			found.add(in.OfAdditionalTools.Tools)
		case in.OfToolSearchOutput != nil:
			list, _ := json.Marshal(in.OfToolSearchOutput.Tools)
			found.addJSON(list)
		}
	}
	for _, list := range r.loaded {
		found.addJSON(list)
	}
	if found.unknown {
		return nil
	}
	allowed := p.ToolChoice.OfAllowedTools
	if allowed == nil {
		return names
	}
	listed := make(map[string]bool)
	for _, t := range allowed.Tools {
		name, _ := t["name"].(string)
		if t["type"] == "namespace" {
			for _, name := range found.spaces[name] {
				listed[name] = true
			}
		} else if names[name] {
			listed[name] = true
		}
	}
	return listed
}

// offeredTools collects names of tools.
type offeredTools struct {
	names   map[string]bool
	spaces  map[string][]string // the names within a namespace
	unknown bool                // something was overridden with JSON
}

func (o *offeredTools) add(tools []responses.ToolUnionParam) {
	for _, t := range tools {
		switch {
		case t.OfNamespace != nil:
			space := t.OfNamespace
			for _, t := range space.Tools {
				if name := t.GetName(); name != nil {
					o.inSpace(space.Name, *name)
				} else {
					o.unknown = true
				}
			}
		case t.GetName() != nil:
			o.names[*t.GetName()] = true
		case t.GetType() == nil:
			o.unknown = true
		}
	}
}

func (o *offeredTools) inSpace(space, name string) {
	o.names[name] = true
	o.spaces[space] = append(o.spaces[space], name)
}

func (o *offeredTools) addJSON(list json.RawMessage) {
	var tools []struct {
		Type, Name string
		Tools      []struct{ Name string }
	}
	json.Unmarshal(list, &tools) // what is no list of tools offers none
	for _, t := range tools {
		if t.Type != "namespace" {
			o.names[t.Name] = true
		}
		for _, in := range t.Tools {
			o.inSpace(t.Name, in.Name)
		}
	}
}

// loadTools notes the tools that items make available from there on.
func (r *run) loadTools(items []item) {
	for _, it := range items {
		if it.Type == "tool_search_output" || it.Type == "additional_tools" {
			r.loaded = append(r.loaded, it.Tools)
			if r.offered != nil { // the response that loads a tool may call it too
				found := offeredTools{names: r.offered, spaces: make(map[string][]string)}
				found.addJSON(it.Tools)
			}
		}
	}
}
