package harness

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Addresses of the node and its cluster.
const (
	nodeName = "node"

	node4, node6                 = "10.200.0.1", "fd00:200::1"
	router4, router6             = "10.200.0.254", "fd00:200::fe"
	podCIDR4, podCIDR6           = "10.244.0.0/16", "fd00:244::/56"
	nodePodCIDR4, nodePodCIDR6   = "10.244.0.0/24", "fd00:244::/64"
	serviceCIDR4, serviceCIDR6   = "10.96.0.0/16", "fd00:96::/112"
	clusterDNS                   = "10.96.0.10"
	addressAPIServer             = node4 + ":6443"
	addressEtcd, addressEtcdPeer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"

	// Registry serves the images and packages of all registries.
	Registry = node4 + ":5000"

	containerdSocket = "/run/containerd/containerd.sock"
)

// configure writes what the components read.
func (n *Node) configure(context.Context) error {
	if err := writeKey(n.path("sa.key"), n.path("sa.pub")); err != nil {
		return err
	}
	tokens := []string{}
	for user, line := range map[string]string{
		"admin":      `%s,admin,admin,"system:masters"`,
		"kubelet":    `%s,system:node:` + nodeName + `,node,"system:nodes"`,
		"kube-proxy": `%s,system:kube-proxy,kube-proxy`,
	} {
		b := make([]byte, 16)
		if _, err := rand.Read(b); err != nil {
			return err
		}
		token := hex.EncodeToString(b)
		tokens = append(tokens, fmt.Sprintf(line, token))
		if err := os.WriteFile(n.path(user+".kubeconfig"), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: node, user: {token: %q}}]
contexts: [{name: node, context: {cluster: node, user: node}}]
current-context: node
`, addressAPIServer, n.path("pki", "apiserver.crt"), token), 0o600); err != nil {
			return err
		}
		if user == "admin" {
			n.token = token
		}
	}
	n.Kubeconfig = n.path("admin.kubeconfig")
	for file, content := range map[string]string{
		"tokens.csv": strings.Join(tokens, "\n") + "\n",

		// Every registry is the one on the node, as in a cluster without internet.
		"registries/_default/hosts.toml": fmt.Sprintf("server = %q\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", "http://"+Registry, "http://"+Registry),

		"containerd.toml": fmt.Sprintf(`version = 3
root = %q
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = %q
[plugins.'io.containerd.cri.v1.images']
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %q
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = %q
[plugins.'io.containerd.cri.v1.runtime']
# Not every machine lets root lower this.
restrict_oom_score_adj = true
disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [%q]
conf_dir = %q
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = %q
SystemdCgroup = false
`, n.path("containerd"), containerdSocket, ImageProgram, n.path("registries"), n.bin, n.path("cni"), filepath.Join(n.bin, "runc")),

		"cni/10-node.conflist": fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "node", "plugins": [{
"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "hairpinMode": true,
"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}], [{"subnet": %q}]]}}]}
`, n.path("addresses"), nodePodCIDR4, nodePodCIDR6),

		"kube-proxy.yaml": fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %q}
clusterCIDR: %q
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, n.path("kube-proxy.kubeconfig"), podCIDR4+","+podCIDR6),
	} {
		if err := os.MkdirAll(filepath.Dir(n.path(file)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(n.path(file), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeletConfig writes the kubelet's configuration, with lines of one's own. It
// answers to everybody: nobody else is there. How full the machine's disk is
// evicts no pod and deletes no image: there would be none left.
func (n *Node) kubeletConfig(lines ...string) error {
	return os.WriteFile(n.path("kubelet.yaml"), fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
failSwapOn: false
containerRuntimeEndpoint: unix://%s
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
resolvConf: ""
clusterDNS: [%s]
clusterDomain: cluster.local
maxPods: 100
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
%s
`, containerdSocket, clusterDNS, strings.Join(lines, "\n")), 0o600)
}

// writeKey stores the key that signs tokens of service accounts, and its public
// half.
func writeKey(private, public string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	if der, err = x509.MarshalPKIXPublicKey(key.Public()); err != nil {
		return err
	}
	return os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600)
}
