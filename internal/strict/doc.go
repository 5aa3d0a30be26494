// Package strict knows which JSON Schemas OpenAI accepts for a function tool
// with strict: true, makes them from Go types and holds a model's arguments to
// them.
//
// The three parts share one reading of a schema. [Schema] writes one for a Go
// type, following encoding/json's own rules for fields, so that whatever fits
// the schema can be decoded into the type. [Check] judges any schema, also one
// written by hand, by a list of what is permitted. [Compile] turns a schema
// into a [Decoder], which tests arguments against exactly what was sent to the
// model before it lets encoding/json convert them.
//
// The package never drops a constraint in silence. What strict mode cannot
// express is an error when the tool is made.
package strict
