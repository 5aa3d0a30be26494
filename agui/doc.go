// Package agui lets front ends that speak the Agent-User Interaction Protocol
// (AG-UI, version 1.0), such as CopilotKit, talk to a back end that runs a
// [fnloop.Loop]. It writes a run as AG-UI events and reads a RunAgentInput.
//
//	mux.HandleFunc("POST /agent", func(w http.ResponseWriter, r *http.Request) {
//		req, err := agui.ReadRequest(r)
//		if err != nil {
//			http.Error(w, err.Error(), http.StatusBadRequest)
//			return
//		}
//		answer := load(req.ThreadID) // your users' conversations, checked for who asks
//		if err := answer.Decide(req.Decisions); err != nil {
//			http.Error(w, err.Error(), http.StatusConflict)
//			return
//		}
//		events := loop.Events(r.Context(), answer, req.Prompt, req.Parts...)
//		err = agui.Write(w, stored(req.ThreadID, events), agui.Options{ThreadID: req.ThreadID, RunID: req.RunID})
//	})
//
// The conversation is the host's. A browser posts all messages that it shows, and
// could change any of them; ReadRequest takes the names of the thread and the run,
// the user's last message, and for calls that wait for approval an ID and yes or
// no. Tools, state and context that a front end offers are not taken.
package agui
