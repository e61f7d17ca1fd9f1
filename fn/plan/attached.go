package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// attachedSettings is the document of an attachment: the settings of a client
// with its public key, or that it is a class of pods and nothing else. An older
// gateway that does not know of pods finds no key, and refuses it.
type attachedSettings struct {
	v1alpha1.Client `json:",inline"`

	Pods bool `json:"pods,omitempty"`
}

// attached is a WireguardPeer whose attachment was accepted.
type attached struct {
	spec.Peer

	// unfit is why it does not fit the gateway, empty where it does.
	unfit string
	// pods tells that it is a class of pods, which has no settings.
	pods bool
}

// attached returns the WireguardPeers whose attachments are accepted, sorted by
// namespace and name, and how many were not.
func (in *Inputs) attached(seed wireguard.Seed, before before) (accepted []attached, refused int) {
	labels := make(map[string]map[string]string, len(in.Namespaces))
	for i := range in.Namespaces {
		labels[in.Namespaces[i].Name] = in.Namespaces[i].Labels
	}
	key := seed.AttachmentKey()
	for i := range in.Attachments {
		m := &in.Attachments[i]
		if !in.Spec.Consent.Allows(m.Namespace, labels[m.Namespace]) {
			continue
		}
		if a, ok := readAttachment(m, in.Spec, key); ok {
			accepted = append(accepted, a)
		}
	}
	// Where there are too many, those that were served come first.
	served := func(a attached) int {
		if before.served(id(a.Namespace, a.Name)) {
			return 0
		}
		return 1
	}
	byName := func(a, b attached) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(accepted, func(a, b attached) int { return cmp.Or(cmp.Compare(served(a), served(b)), byName(a, b)) })
	accepted = accepted[:min(len(accepted), maxAttached)]
	slices.SortFunc(accepted, byName)
	return accepted, len(in.Attachments) - len(accepted)
}

// readAttachment reads an attachment that a WireguardPeer composed, and nobody
// else wrote, copied or kept. What it says is believed only after its code was
// found right; whose it is never follows from its labels, which anybody may
// write.
func readAttachment(m *corev1.ConfigMap, g *spec.Gateway, key []byte) (attached, bool) {
	name, ok := strings.CutSuffix(m.Name, names.Attachment(""))
	// A finalizer could keep it when its owner is gone, and what is immutable would
	// stay as it is when its owner disables the peer.
	if !ok || m.DeletionTimestamp != nil || m.Immutable != nil && *m.Immutable || !ownedBy(m, m.Data[wireguard.AttachmentUIDKey]) {
		return attached{}, false
	}
	a := wireguard.Attachment{
		Gateway:   id(g.Namespace, g.Name),
		Namespace: m.Namespace,
		Name:      name,
		UID:       m.Data[wireguard.AttachmentUIDKey],
		Client:    []byte(m.Data[wireguard.AttachmentClientKey]),
	}
	if !a.Authentic(key, m.Data[wireguard.AttachmentMACKey]) {
		return attached{}, false
	}
	s := attachedSettings{}
	if err := json.Unmarshal(a.Client, &s); err != nil || s.Pods == (s.PublicKey != "") {
		return attached{}, false
	}
	if s.Pods {
		return attached{Peer: spec.Peer{Namespace: m.Namespace, Name: name}, pods: true}, true
	}
	// It names no Secrets: they would be taken for the gateway's own.
	s.PrivateKeySecretRef = nil
	peer, errs := spec.ParseClient(name, m.Namespace, &s.Client, g)
	return attached{Peer: peer, unfit: explain(errs)}, true
}

// ownedBy tells whether a WireguardPeer of the given UID controls the object.
// Garbage collection takes what names an owner that is not there.
func ownedBy(o metav1.Object, uid string) bool {
	c := metav1.GetControllerOfNoCopy(o)
	if c == nil || uid == "" || string(c.UID) != uid {
		return false
	}
	gv, err := schema.ParseGroupVersion(c.APIVersion)
	return err == nil && gv.Group == v1alpha1.Group && (c.Kind == v1alpha1.PeerKind || c.Kind == v1alpha1.CompositePeerKind)
}

// explain returns the first error, and how many there are beside it: the message
// has to fit a status in which others have theirs.
func explain(errs field.ErrorList) string {
	switch len(errs) {
	case 0:
		return ""
	case 1:
		return errs[0].Error()
	default:
		return fmt.Sprintf("%s; %d more", errs[0].Error(), len(errs)-1)
	}
}

// attach adds the WireguardPeers to the peers and to the classes of pods. Clients
// that have the name of an inline peer are returned instead: they take part in
// nothing, so that nothing of the inline one changes.
func (g *Gateway) attach(accepted []attached) (duplicates []Peer) {
	inline := make(map[string]bool, len(g.Peers))
	for i := range g.Peers {
		inline[g.Peers[i].ID()] = true
	}
	for i := range accepted {
		a := &accepted[i]
		if a.pods {
			g.attachPods(a, inline)
			continue
		}
		a.Access = withinLimits(g.Consent.Limits.Access, a.Access)
		p := Peer{Peer: &a.Peer, Attached: true}
		if inline[p.ID()] {
			p.reject(v1alpha1.ReasonDuplicateName, duplicateName(p.Name))
			duplicates = append(duplicates, p)
			continue
		}
		g.Peers = append(g.Peers, p)
	}
	return duplicates
}

func duplicateName(name string) string {
	return fmt.Sprintf("the gateway has an inline peer %q, which comes before a WireguardPeer of the same namespace and name: rename one of them", name)
}

// withinConsent rejects the WireguardPeers that ask for what the owner does not
// allow, or what the gateway does not have.
func (g *Gateway) withinConsent(accepted []attached) {
	unfit := make(map[string]string, len(accepted))
	for i := range accepted {
		unfit[id(accepted[i].Namespace, accepted[i].Name)] = accepted[i].unfit
	}
	for i := range g.Peers {
		p := &g.Peers[i]
		if !p.Attached {
			continue
		}
		if message := unfit[p.ID()]; message != "" {
			p.reject(v1alpha1.ReasonInvalid, message)
		}
		for _, r := range p.Routes {
			if !g.Consent.Limits.Within(r) {
				p.reject(v1alpha1.ReasonRouteNotAllowed, fmt.Sprintf(
					"the gateway's owner does not let WireguardPeers announce the route %s of peer %q: leave it out, or ask the owner to add it to spec.allowedPeerNamespaces.limits.routes", r, p.title()))
			}
		}
	}
}
