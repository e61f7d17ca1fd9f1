package v1alpha1

// The types here are aliases of string. They give the fields that use them
// their syntax and the message that says how to meet it.
//
// Rules keep to what Kubernetes 1.31 compiles: the first release whose API
// server takes addresses and networks in rules. Messages are formatted by
// literal strings only: with any other, that release panics.

// CIDR is a network of either family whose host bits are zero. Its rule asks
// whether the network is in a list of one, since Kubernetes 1.31 takes the cost
// of comparing two networks for unlimited.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) in [cidr(self).masked()]",message="must be a network in CIDR notation without host bits, such as 192.168.50.0/24",messageExpression="isCIDR(self) ? '\"%s\" has host bits set: write \"%s\"'.format([self, string(cidr(self).masked())]) : '\"%s\" is not a network in CIDR notation, such as 192.168.50.0/24 or fd00:8::/64. A single address ends in /32 or /128'.format([self])"
type CIDR = string

// SourceRange is a network of either family. Host bits are taken for zero.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a network in CIDR notation, such as 192.0.2.0/24",messageExpression="'\"%s\" is not a network in CIDR notation, such as 192.0.2.0/24 or 2001:db8::/32. A single address ends in /32 or /128'.format([self])"
type SourceRange = string

// Address is a single address of either family.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=45
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be a single IPv4 or IPv6 address",messageExpression="'\"%s\" is not an IP address: write one such as 10.8.0.53 or fd00:8::53, without a prefix length, port, zone or name'.format([self])"
type Address = string

// AddressOrRange is a single address, or the first and last of a range.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=91
// +kubebuilder:validation:XValidation:rule="isIP(self) || (self.matches('^[^-]+-[^-]+$') && self.split('-').all(a, isIP(a)))",message="must be an address or a range of addresses",messageExpression="'\"%s\" is neither an address nor a range: write one such as 10.8.0.20 or 10.8.0.2-10.8.0.9'.format([self])"
// +kubebuilder:validation:XValidation:rule="!self.matches('^[^-]+-[^-]+$') || !self.split('-').all(a, isIP(a)) || ip(self.split('-')[0]).family() == ip(self.split('-')[1]).family()",message="both ends of a range must be of one family",messageExpression="'\"%s\" mixes IPv4 and IPv6: write one range for each'.format([self])"
// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9.]+-[0-9.]+$') || !self.split('-').all(a, isIP(a)) || [self.split('-').map(a, a.split('.', 4))].all(r, ((int(r[0][0]) * 256 + int(r[0][1])) * 256 + int(r[0][2])) * 256 + int(r[0][3]) <= ((int(r[1][0]) * 256 + int(r[1][1])) * 256 + int(r[1][2])) * 256 + int(r[1][3]))",message="a range must begin with its lower address",messageExpression="'\"%s\" is upside down: write \"%s-%s\"'.format([self, self.split('-')[1], self.split('-')[0]])"
type AddressOrRange = string

// Host is an address, IPv6 with or without brackets, or a DNS name.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="isIP(self) || self.matches('^([A-Za-z0-9_-]{1,63}[.])*[A-Za-z][A-Za-z0-9-]{0,62}[.]?$') || (self.startsWith('[') && self.endsWith(']') && self.contains(':') && isIP(self.substring(1, size(self) - 1)))",message="must be an IP address or a DNS name, without scheme or port",messageExpression="'\"%s\" is neither an IP address nor a DNS name: write one such as vpn.example.com, 203.0.113.9 or 2001:db8::9. The port has a field of its own'.format([self])"
type Host = string

// HostPort is an address or a DNS name, with a port.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=261
// +kubebuilder:validation:XValidation:rule="self.matches('^(([A-Za-z0-9_-]{1,63}[.])*[A-Za-z][A-Za-z0-9-]{0,62}[.]?|[0-9.]+|[[][^]]*:[^]]*[]]):[1-9][0-9]{0,4}$') && [self.lastIndexOf(':')].all(i, int(self.substring(i + 1)) <= 65535 && (self.startsWith('[') ? isIP(self.substring(1, i - 1)) : self.matches('[A-Za-z]') || isIP(self.substring(0, i))))",message="must be host:port",messageExpression="'\"%s\" is not host:port: write one such as 198.51.100.9:51820, [2001:db8::9]:51820 or site-b.example.com:51820'.format([self])"
type HostPort = string

// Domain is a DNS name, relative or with a dot at its end.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?[.])*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?[.]?$`
type Domain = string

// Hostname is a DNS name in lower case, as Gateway API has it, without a
// wildcard: it is what clients connect to.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?[.])*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`
type Hostname = string

// ObjectName is the name of a Kubernetes object.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
type ObjectName = string

// NamespaceName is the name of a namespace.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type NamespaceName = string

// DataKey is a key in the data of a Secret.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
type DataKey = string

// PublicKey is a Curve25519 public key in base64, as `wg pubkey` prints it.
//
// +kubebuilder:validation:MinLength=44
// +kubebuilder:validation:MaxLength=44
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
type PublicKey = string

// Image is a reference to a container image, by tag or digest.
//
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._:/@-]*)?$`
type Image = string

// PortOrRange is a port, or the first and last of a range.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=11
// +kubebuilder:validation:Pattern=`^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])(-([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$`
type PortOrRange = string

// ServerFilter is one value of a list that gluetun takes separated by commas.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[^,[:cntrl:]]+$`
type ServerFilter = string
