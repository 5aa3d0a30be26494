// Package interpreter keeps a Python interpreter alive between pieces of code,
// as a notebook does: what one cell defines the next one finds.
//
// [Open] starts a [Session] on a [fnloop.Runner] that can keep an interpreter.
// [Session.Run] runs a cell and gives its [Execution]: what it printed, the
// value of its last expression, figures and tables as MIME types, the error
// with its traceback, and the files that it made or changed. Files go in and
// out through [Session.Put] and [Session.Get].
//
// A cell that hangs is interrupted first. If it has to be killed, or if it crashes
// or runs out of memory, a copy of the interpreter takes over that was made before
// the cell ran: the variables are as they were, and [Execution.Restored] says so.
// If there is no copy, [Execution.Loss] says what is gone. No cell is run twice.
//
// Some runners keep an interpreter by themselves. [Session.Ref] then names it, and
// [Resume] finds it again in this process or another; [Session.Fork] and
// [Session.Snapshot] copy it. [Sessions] use this to find the session of a
// conversation again.
//
// The code of a session has the same sandbox as a program of the runner: no
// network, no file of the host, and limits on memory, processes and time.
// Do not trust what comes out of it: HTML and SVG of a [Display] can hold scripts.
package interpreter
