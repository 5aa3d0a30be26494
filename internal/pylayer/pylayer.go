// Package pylayer makes layers: folders with Python packages that sandboxes have
// beside their interpreter.
//
// A layer is made once for a [List] of requirements and an interpreter. The
// install runs as a program ([List.Program]) of a sandbox that has a network and
// nothing else that programs have not. What it leaves is taken over file by file
// ([Copy]), by this process, which trusts nothing of it. A runner keeps layers
// where its sandboxes can have them: in a [Store], or in an engine.
package pylayer

import "time"

// Unused is how long a layer that nobody uses is kept.
const Unused = 30 * 24 * time.Hour
