package fnloop

// A View is what a person sees of a run. The zero View leaves out what is for the
// model or the host alone: the outputs of calls, the model's reasoning, the items
// of the conversation, and the state of tools. The names and arguments of calls
// are seen, with whether they failed.
type View struct {
	// Outputs shows what calls print and return, and what tools of the API found.
	Outputs bool
	// Reasoning shows the summaries of the model's reasoning, and the reasoning
	// itself if the model gives it.
	Reasoning bool
	// All shows each event as it is, for readers who operate the host. Only the
	// state of tools is left out, since it may name a session.
	All bool
}

// Event is e as the View shows it, or nil if it does not. An event of a tool's own
// (see [Emit]) is shown as it is. E is not changed.
func (v View) Event(e Event) Event {
	switch e := e.(type) {
	case ReasoningDelta:
		if !v.Reasoning && !v.All {
			return nil
		}
	case CallOutput:
		if !v.Outputs && !v.All {
			return nil
		}
	case ApprovalRequested:
		e.Call = v.call(e.Call)
		return e
	case CallStarted:
		e.Call = v.call(e.Call)
		return e
	case CallEvent:
		if e.Event != nil {
			e.Event = v.Event(e.Event)
		}
		if e.Event == nil {
			return nil
		}
		return e
	case HostedProgress:
		if !v.Outputs && !v.All {
			e.Text = ""
		}
		return e
	case HostedFinished:
		e.HostedCall = v.hosted(e.HostedCall)
		return e
	case CallFinished:
		e.CallResult = v.result(e.CallResult)
		return e
	case Done:
		if e.Answer != nil {
			e.Answer = v.Answer(e.Answer)
		}
		return e
	}
	return e
}

// Answer is a as the View shows it, in a copy: its texts, citations, counts and
// calls, its files without their bytes, and of the pending calls those that wait
// for approval. It cannot be continued.
func (v View) Answer(a *Answer) *Answer {
	if v.All {
		all := *a
		all.ToolState = nil
		return &all
	}
	seen := newAnswer(a.Stop)
	seen.Text, seen.Partial, seen.Interrupted = a.Text, a.Partial, a.Interrupted
	seen.Turns, seen.Responses, seen.Unmetered = a.Turns, a.Responses, a.Unmetered
	seen.Usage, seen.Model, seen.ServiceTier, seen.ContextTokens = a.Usage, a.Model, a.ServiceTier, a.ContextTokens
	seen.Cause, seen.Citations = a.Cause, a.Citations
	for _, h := range a.Hosted {
		seen.Hosted = append(seen.Hosted, v.hosted(h))
	}
	for _, f := range a.Files {
		f.Data = nil // which its own event has
		seen.Files = append(seen.Files, f)
	}
	for _, c := range a.Waiting() {
		seen.Pending = append(seen.Pending, v.call(c))
	}
	for _, c := range a.Calls {
		seen.Calls = append(seen.Calls, v.result(c))
	}
	return seen
}

func (v View) call(c Call) Call {
	if !v.All {
		c.digest, c.caller, c.inner = "", "", nil
	}
	return c
}

func (v View) hosted(h HostedCall) HostedCall {
	if !v.Outputs && !v.All {
		h.Item = nil
	}
	return h
}

func (v View) result(c CallResult) CallResult {
	c.Call = v.call(c.Call)
	if !v.Outputs && !v.All {
		c.Output = Output{IsError: c.IsError}
	}
	return c
}
