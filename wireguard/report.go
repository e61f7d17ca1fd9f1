package wireguard

import (
	"encoding/json"
	"fmt"
)

// ReportKey is the data key of the agent's report in the ConfigMap
// <gateway>-wireguard.status.
const ReportKey = "report.json"

// ReportFieldManager is the field manager with which the agent applies it.
const ReportFieldManager = "wireguard-gateway-agent"

// States of the egress through gluetun.
const (
	EgressTunnelUp           = "TunnelUp"
	EgressTunnelStarting     = "TunnelStarting"
	EgressTunnelDown         = "TunnelDown"
	EgressCredentialsMissing = "CredentialsMissing"
)

// Report is what the gateway's agent says of itself. Nothing in it moves with
// traffic or with time, so it is written on change only.
type Report struct {
	Version int `json:"version"`
	// ConfigHash is ConfigHash of the configuration that was applied last.
	ConfigHash string `json:"configHash,omitempty"`
	Ready      bool   `json:"ready"`
	// Reasons say what keeps the agent from being ready.
	Reasons      []string     `json:"reasons,omitempty"`
	Egress       EgressReport `json:"egress,omitzero"`
	InjectedPods int          `json:"injectedPods,omitempty"`
}

// EgressReport is what the agent sees of gluetun.
type EgressReport struct {
	State          string `json:"state,omitempty"`
	PublicIP       string `json:"publicIP,omitempty"`
	Country        string `json:"country,omitempty"`
	ForwardedPorts []int  `json:"forwardedPorts,omitempty"`
}

// Encode returns the document as it stands in the ConfigMap.
func (r Report) Encode() ([]byte, error) {
	r.Version = DocumentVersion
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("cannot encode report: %w", err)
	}
	return b, nil
}

// DecodeReport reads the document. It accepts unknown fields, and refuses an
// unknown version.
func DecodeReport(b []byte) (Report, error) {
	r := Report{}
	if err := decode(b, &r); err != nil {
		return Report{}, fmt.Errorf("cannot decode report: %w", err)
	}
	return r, nil
}
