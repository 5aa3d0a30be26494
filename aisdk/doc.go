// Package aisdk lets front ends of the Vercel AI SDK, such as its useChat, talk to
// a back end that runs a [fnloop.Loop]. It writes a run as a UI message stream,
// version 1, and reads what the front end posts.
//
//	mux.HandleFunc("POST /api/chat", func(w http.ResponseWriter, r *http.Request) {
//		req, err := aisdk.ReadRequest(r)
//		if err != nil {
//			http.Error(w, err.Error(), http.StatusBadRequest)
//			return
//		}
//		answer := load(req.ChatID) // your users' conversations, checked for who asks
//		if err := answer.Decide(req.Decisions); err != nil {
//			http.Error(w, err.Error(), http.StatusConflict)
//			return
//		}
//		events := loop.Events(r.Context(), answer, req.Prompt, req.Parts...)
//		err = aisdk.Write(w, stored(req.ChatID, events), aisdk.Options{})
//	})
//
// The conversation is the host's. A browser posts all messages that it shows, and
// could change any of them; ReadRequest takes the chat's ID, the user's last
// message, and for calls that wait for approval an ID and yes or no.
//
// Written for the packages ai 7 and @ai-sdk/react 4. Streams are read by ai 6 too,
// and by ai 5 unless a call waits for approval, for which that version has no form.
package aisdk
