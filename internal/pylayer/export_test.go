package pylayer

var Countable = countable
