// Package fnloop drives a model through OpenAI's Responses API until it answers.
package fnloop
