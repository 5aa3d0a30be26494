package main

// What the tests outside the package drive.
var (
	Main = main
	Run  = run

	CLIWords = cliWords
)
