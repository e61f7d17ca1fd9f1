package wireguard

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// EnrolmentKey is the data key of the Secret <peer>-wireguard.enrolment.
const EnrolmentKey = "enrolment.json"

// EnrolmentSecret returns the name of the Secret from which the pods of a
// WireguardPeer join its gateway.
func EnrolmentSecret(peer string) string { return peer + "-wireguard.enrolment" }

// Enrolment is what the sidecar of a pod needs to join its gateway. All pods of
// a WireguardPeer have the same: what tells them apart is their UID, from which
// each derives a key of its own with PodKey.
type Enrolment struct {
	Version int `json:"version"`
	// Gateway is the gateway's namespace and name, joined by a slash.
	Gateway          string `json:"gateway"`
	GatewayPublicKey Key    `json:"gatewayPublicKey"`
	// Endpoint is the gateway's Service: its name in the cluster's DNS, and its
	// port.
	Endpoint string `json:"endpoint"`
	ClassKey Key    `json:"classKey"`
	// MTU is the device's, in bytes.
	MTU int `json:"mtu"`
	// BypassCIDRs are the networks that the pod reaches directly.
	BypassCIDRs    []netip.Prefix `json:"bypassCIDRs,omitempty"`
	Implementation string         `json:"implementation"`
	// PersistentKeepalive is in seconds.
	PersistentKeepalive int `json:"persistentKeepalive"`
}

// Encode returns the document as it stands in the Secret.
func (e Enrolment) Encode() ([]byte, error) {
	e.Version = DocumentVersion
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("cannot encode enrolment: %w", err)
	}
	return b, nil
}

// DecodeEnrolment reads the document. It accepts unknown fields, and refuses an
// unknown version.
func DecodeEnrolment(b []byte) (Enrolment, error) {
	e := Enrolment{}
	if err := decode(b, &e); err != nil {
		return Enrolment{}, fmt.Errorf("cannot decode enrolment: %w", err)
	}
	return e, nil
}
