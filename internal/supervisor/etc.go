package supervisor

// Hostname is a sandbox's own name.
const Hostname = "sandbox"

// Hosts is the /etc/hosts of a sandbox. Not every kernel has IPv6, and a server
// on localhost binds all its addresses.
const Hosts = "127.0.0.1 localhost\n127.0.1.1 " + Hostname + "\n::1 ip6-localhost ip6-loopback\n"

// PipConf is the /etc/pip.conf of a sandbox. pip names the index that it looks
// in, and prints an error of the network where it tries more than once.
const PipConf = `[global]
retries = 1
timeout = 2
index-url = http://this-sandbox-has-no-network.invalid
trusted-host = this-sandbox-has-no-network.invalid
disable-pip-version-check = true
[install]
break-system-packages = true
`
