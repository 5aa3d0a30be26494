package fnloop

// ForgetTypes makes the next NewTool of any type the first one.
func ForgetTypes() { goTypes.Clear() }
