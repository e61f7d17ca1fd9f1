// Package pods finds the pods that join the gateway by a label: it watches
// them in the namespaces whose WireguardPeers are classes of pods, and decides
// which of them are served, and with which key and addresses.
package pods

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Pod is what matters of a pod, and nothing else: a gateway may serve hundreds.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Class is the name of the WireguardPeer that the pod asks for.
	Class string `json:"class"`
	// Enrolments are the Secrets that the sidecar mounts.
	Enrolments  []string `json:"enrolments,omitempty"`
	HostNetwork bool     `json:"hostNetwork,omitempty"`
	// Ended tells that no container of it runs any more. It keeps its addresses
	// in its status, which may be others' by then.
	Ended     bool         `json:"ended,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Started is when its node took it on, and Created when it was made.
	Started time.Time `json:"started,omitzero"`
	Created time.Time `json:"created,omitzero"`
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

func (p Pod) equal(q Pod) bool {
	return p.Namespace == q.Namespace && p.Name == q.Name && p.UID == q.UID && p.Class == q.Class &&
		slices.Equal(p.Enrolments, q.Enrolments) && p.HostNetwork == q.HostNetwork && p.Ended == q.Ended &&
		slices.Equal(p.Addresses, q.Addresses) && p.Started.Equal(q.Started) && p.Created.Equal(q.Created)
}

// object is the part of the API's pod that Pod is made from.
type object struct {
	Metadata struct {
		Namespace         string            `json:"namespace"`
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		Labels            map[string]string `json:"labels"`
		CreationTimestamp time.Time         `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork    bool `json:"hostNetwork"`
		InitContainers []struct {
			Name         string `json:"name"`
			VolumeMounts []struct {
				Name string `json:"name"`
			} `json:"volumeMounts"`
		} `json:"initContainers"`
		Volumes []struct {
			Name   string `json:"name"`
			Secret *struct {
				SecretName string `json:"secretName"`
			} `json:"secret"`
		} `json:"volumes"`
	} `json:"spec"`
	Status struct {
		Phase  string `json:"phase"`
		PodIPs []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
		StartTime time.Time `json:"startTime"`
	} `json:"status"`
}

// decode reads a pod as the API writes it. What cannot be read is a pod without
// UID, which is not served.
func decode(b []byte) Pod {
	o := object{}
	if err := json.Unmarshal(b, &o); err != nil {
		return Pod{}
	}
	p := Pod{
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID,
		Class:       o.Metadata.Labels[wireguard.PeerLabel],
		Enrolments:  o.enrolments(),
		HostNetwork: o.Spec.HostNetwork,
		Ended:       o.Status.Phase == string(corev1.PodSucceeded) || o.Status.Phase == string(corev1.PodFailed),
		Started:     o.Status.StartTime, Created: o.Metadata.CreationTimestamp,
	}
	for _, x := range o.Status.PodIPs {
		if a, err := netip.ParseAddr(x.IP); err == nil {
			p.Addresses = append(p.Addresses, a.Unmap())
		}
	}
	return p
}

// enrolments returns the Secrets that the sidecar mounts.
func (o object) enrolments() []string {
	secrets := map[string]string{}
	for _, v := range o.Spec.Volumes {
		if v.Secret != nil {
			secrets[v.Name] = v.Secret.SecretName
		}
	}
	var out []string
	for _, c := range o.Spec.InitContainers {
		if c.Name != wireguard.Sidecar {
			continue
		}
		for _, m := range c.VolumeMounts {
			if s, ok := secrets[m.Name]; ok {
				out = append(out, s)
			}
		}
	}
	return out
}
