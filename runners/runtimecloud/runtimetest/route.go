package runtimetest

import "net/http"

// A Step is one kind of request, for [Server.Fail] and [Server.Requests].
type Step string

// The steps of a run and of what surrounds it.
const (
	StepMe      Step = "me"
	StepCreate  Step = "create"
	StepList    Step = "list"
	StepRead    Step = "read"
	StepDelete  Step = "delete"
	StepStop    Step = "stop"
	StepPause   Step = "pause"
	StepWake    Step = "wake"
	StepExtend  Step = "extend"
	StepNetwork Step = "network" // PUT
	StepRules   Step = "rules"   // GET
	StepWrite   Step = "write"
	StepFile    Step = "file" // GET
	StepUpload  Step = "upload"
	StepChunk   Step = "chunk"
	StepCommit  Step = "commit"
	StepAbort   Step = "abort"
	StepExec    Step = "exec"
	StepOutput  Step = "output"
	StepSignal  Step = "signal"
	StepSecret  Step = "secret"
	StepSecrets Step = "secrets" // GET
	StepUnset   Step = "unset"   // DELETE

	StepContext     Step = "context"  // POST
	StepContexts    Step = "contexts" // GET
	StepCell        Step = "cell"
	StepInterrupt   Step = "interrupt"
	StepRestart     Step = "restart"
	StepDropContext Step = "drop context" // DELETE
	StepResult      Step = "result"       // GET
	StepProcess     Step = "process"      // GET
	StepFiles       Step = "files"        // GET
	StepStat        Step = "stat"
	StepRemove      Step = "remove"
	StepRetention   Step = "retention"
	StepFork        Step = "fork"
	StepSnapshot    Step = "snapshot"
	StepSnapshots   Step = "snapshot state" // GET
	StepForget      Step = "forget"         // a snapshot
	StepImage       Step = "image"          // POST
	StepImages      Step = "image state"    // GET
	StepImageLog    Step = "image log"
)

type route struct {
	step        Step
	handle      func(*Server, *call) (*answer, *apiError)
	wrongMethod bool
}

// routes are written with * for a segment that is a name.
var routes = []struct {
	method string
	path   []string
	verb   string
	route
}{
	{"GET", []string{"me"}, "", route{step: StepMe, handle: (*Server).me}},
	{"POST", []string{"sandboxes"}, "", route{step: StepCreate, handle: (*Server).create}},
	{"GET", []string{"sandboxes"}, "", route{step: StepList, handle: (*Server).list}},
	{"GET", []string{"sandboxes", "*"}, "", route{step: StepRead, handle: (*Server).read}},
	{"DELETE", []string{"sandboxes", "*"}, "", route{step: StepDelete, handle: (*Server).remove}},
	{"POST", []string{"sandboxes", "*"}, "stop", route{step: StepStop, handle: (*Server).stop}},
	{"POST", []string{"sandboxes", "*"}, "pause", route{step: StepPause, handle: (*Server).pause}},
	{"POST", []string{"sandboxes", "*"}, "wake", route{step: StepWake, handle: (*Server).wake}},
	{"POST", []string{"sandboxes", "*"}, "extend", route{step: StepExtend, handle: (*Server).extend}},
	{"POST", []string{"sandboxes", "*"}, "exec", route{step: StepExec, handle: (*Server).exec}},
	{"GET", []string{"sandboxes", "*", "network"}, "", route{step: StepRules, handle: (*Server).rules}},
	{"PUT", []string{"sandboxes", "*", "network"}, "", route{step: StepNetwork, handle: (*Server).setRules}},
	{"PUT", []string{"sandboxes", "*", "files", "content"}, "", route{step: StepWrite, handle: (*Server).writeFile}},
	{"GET", []string{"sandboxes", "*", "files", "content"}, "", route{step: StepFile, handle: (*Server).readFile}},
	{"POST", []string{"sandboxes", "*", "uploads"}, "", route{step: StepUpload, handle: (*Server).upload}},
	{"PUT", []string{"sandboxes", "*", "uploads", "*"}, "", route{step: StepChunk, handle: (*Server).chunk}},
	{"POST", []string{"sandboxes", "*", "uploads", "*"}, "commit", route{step: StepCommit, handle: (*Server).commit}},
	{"POST", []string{"sandboxes", "*", "uploads", "*"}, "abort", route{step: StepAbort, handle: (*Server).abort}},
	{"GET", []string{"sandboxes", "*", "processes", "*", "output"}, "", route{step: StepOutput, handle: (*Server).output}},
	{"POST", []string{"sandboxes", "*", "processes", "*"}, "signal", route{step: StepSignal, handle: (*Server).signal}},
	{"GET", []string{"egress-secrets"}, "", route{step: StepSecrets, handle: (*Server).listSecrets}},
	{"PUT", []string{"egress-secrets", "*"}, "", route{step: StepSecret, handle: (*Server).setSecret}},
	{"DELETE", []string{"egress-secrets", "*"}, "", route{step: StepUnset, handle: (*Server).unsetSecret}},
	{"GET", []string{"sandboxes", "*", "interpreter", "contexts"}, "", route{step: StepContexts, handle: (*Server).contexts}},
	{"POST", []string{"sandboxes", "*", "interpreter", "contexts"}, "", route{step: StepContext, handle: (*Server).newContext}},
	{"DELETE", []string{"sandboxes", "*", "interpreter", "contexts", "*"}, "", route{step: StepDropContext, handle: (*Server).dropContext}},
	{"POST", []string{"sandboxes", "*", "interpreter", "contexts", "*"}, "restart", route{step: StepRestart, handle: (*Server).restart}},
	{"POST", []string{"sandboxes", "*", "interpreter", "contexts", "*"}, "interrupt", route{step: StepInterrupt, handle: (*Server).interrupt}},
	{"GET", []string{"sandboxes", "*", "interpreter", "contexts", "*", "results", "*"}, "", route{step: StepResult, handle: (*Server).result}},
	{"POST", []string{"sandboxes", "*", "interpreter"}, "run", route{step: StepCell, handle: (*Server).runCell}},
	{"GET", []string{"sandboxes", "*", "processes", "*"}, "", route{step: StepProcess, handle: (*Server).readProcess}},
	{"GET", []string{"sandboxes", "*", "files", "list"}, "", route{step: StepFiles, handle: (*Server).listFiles}},
	{"GET", []string{"sandboxes", "*", "files", "stat"}, "", route{step: StepStat, handle: (*Server).stat}},
	{"POST", []string{"sandboxes", "*", "files"}, "remove", route{step: StepRemove, handle: (*Server).removeFile}},
	{"POST", []string{"sandboxes", "*"}, "retention", route{step: StepRetention, handle: (*Server).retention}},
	{"POST", []string{"sandboxes", "*"}, "fork", route{step: StepFork, handle: (*Server).fork}},
	{"POST", []string{"sandboxes", "*"}, "snapshot", route{step: StepSnapshot, handle: (*Server).snapshot}},
	{"GET", []string{"snapshots", "*"}, "", route{step: StepSnapshots, handle: (*Server).readSnapshot}},
	{"POST", []string{"snapshots", "*"}, "delete", route{step: StepForget, handle: (*Server).forget}},
	{"POST", []string{"images"}, "", route{step: StepImage, handle: (*Server).newImage}},
	{"GET", []string{"images", "*"}, "", route{step: StepImages, handle: (*Server).readImage}},
	{"GET", []string{"images", "*", "logs"}, "", route{step: StepImageLog, handle: (*Server).imageLog}},
	// Parts of the API that the stand-in knows of and does not have.
	{"POST", []string{"sandboxes", "*", "files"}, "mkdir", route{step: "mkdir", handle: unsupported}},
	{"POST", []string{"sandboxes", "*", "files"}, "rename", route{step: "rename", handle: unsupported}},
	{"POST", []string{"sandboxes", "*", "files"}, "chmod", route{step: "chmod", handle: unsupported}},
	{"POST", []string{"sandboxes", "*"}, "update", route{step: "update", handle: unsupported}},
}

func unsupported(*Server, *call) (*answer, *apiError) {
	return nil, refuse(http.StatusServiceUnavailable, "unsupported", "The stand-in does not have this.")
}

// match finds the route of a request. No path is ever redirected.
func (c *call) match() route {
	var found route
	for _, r := range routes {
		if r.verb != c.verb || len(r.path) != len(c.path) {
			continue
		}
		same := true
		for i, segment := range r.path {
			same = same && (segment == "*" || segment == c.path[i])
		}
		if same && r.method == c.Method {
			return r.route
		}
		if same {
			found = route{step: r.step, wrongMethod: true}
		}
	}
	return found
}
