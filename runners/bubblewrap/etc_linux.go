package bubblewrap

import (
	"path/filepath"
	"strings"
)

// etc are the files and folders of /etc without which parts of a distribution's
// Python packages do not work, and its R and Java not at all. None is secret
// anywhere.
var etc = append([]string{"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "mime.types", "matplotlibrc", "R"}, javaEtc()...)

// javaEtc are what Debian's Java keeps in /etc, but for the folder where
// passwords are kept.
func javaEtc() (names []string) {
	for _, pattern := range []string{"java-*-openjdk/*.cfg", "java-*-openjdk/*.properties", "java-*-openjdk/security"} {
		found, _ := filepath.Glob("/etc/" + pattern)
		for _, path := range found {
			names = append(names, strings.TrimPrefix(path, "/etc/"))
		}
	}
	return names
}

// What a sandbox has in /etc that is not the host's.
const (
	passwd   = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n"
	group    = "root:x:0:\nnogroup:x:65534:\n"
	nsswitch = "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"

	// The host's own list may not be there. The numbers are those of IANA.
	protocols = `ip 0 IP
icmp 1 ICMP
igmp 2 IGMP
tcp 6 TCP
udp 17 UDP
ipv6 41 IPv6
ipv6-icmp 58 IPv6-ICMP
`
	services = `echo 7/tcp
echo 7/udp
ftp-data 20/tcp
ftp 21/tcp
ssh 22/tcp
telnet 23/tcp
smtp 25/tcp mail
time 37/tcp
domain 53/tcp
domain 53/udp
tftp 69/udp
http 80/tcp www
kerberos 88/tcp
kerberos 88/udp
pop3 110/tcp
ntp 123/udp
imap2 143/tcp imap
snmp 161/udp
bgp 179/tcp
ldap 389/tcp
https 443/tcp
https 443/udp
submissions 465/tcp smtps
syslog 514/udp
submission 587/tcp
ldaps 636/tcp
rsync 873/tcp
imaps 993/tcp
pop3s 995/tcp
mysql 3306/tcp
postgresql 5432/tcp
amqp 5672/tcp
redis 6379/tcp
http-alt 8080/tcp
`
)
