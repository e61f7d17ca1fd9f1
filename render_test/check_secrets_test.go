package render_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func statusOf(rsp *fnv1.RunFunctionResponse) map[string]*structpb.Value {
	return rsp.GetDesired().GetComposite().GetResource().GetFields()["status"].GetStructValue().GetFields()
}

// secretData returns what is in a Secret, decoded.
func secretData(s *structpb.Struct) map[string][]byte {
	out := map[string][]byte{}
	if s.GetFields()["kind"].GetStringValue() != "Secret" {
		return out
	}
	for key, v := range s.GetFields()["data"].GetStructValue().GetFields() {
		if b, err := base64.StdEncoding.DecodeString(v.GetStringValue()); err == nil {
			out[key] = b
		}
	}
	return out
}

func gatewayConfig(tb testing.TB, rsp *fnv1.RunFunctionResponse) wireguard.GatewayConfig {
	tb.Helper()
	c, err := wireguard.DecodeGatewayConfig(secretData(rsp.GetDesired().GetResources()["config"].GetResource())["config.json"])
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// secrets are all private values that a run knew of, by what they are: what
// stood in Secrets before, and what it put there.
func secrets(tb testing.TB, o outcome) map[string][]byte {
	tb.Helper()
	out := map[string][]byte{}
	// The path prefix of the tunnel is none: the HTTPRoute shows it.
	add := func(what string, b []byte) {
		if len(b) >= 16 {
			out[what] = b
		}
	}
	of := func(from string, s *structpb.Struct) {
		for key, b := range secretData(s) {
			what := from + "/" + key
			add(what, b)
			for line := range strings.Lines(string(b)) {
				if k, v, ok := strings.Cut(strings.TrimSpace(line), " = "); ok && (k == "PrivateKey" || k == "PresharedKey") {
					add(what+" "+k, []byte(v))
				}
			}
			if key == wireguard.GluetunAuthKey {
				auth := struct {
					APIKey string `json:"apikey"`
				}{}
				if json.Unmarshal(b, &auth) != nil || auth.APIKey == "" {
					tb.Errorf("%s has no API key: the test does not know what to look for", what)
				}
				add(what+" apikey", []byte(auth.APIKey))
			}
			if key == wireguard.ConfigKey {
				if c, err := wireguard.DecodeGatewayConfig(b); err == nil {
					add(what+" privateKey", []byte(c.PrivateKey.String()))
					for _, class := range c.PodClasses {
						add(what+" key of "+class.Name, []byte(class.Key.String()))
					}
				}
			}
			if key == wireguard.EnrolmentKey {
				e, err := wireguard.DecodeEnrolment(b)
				if err != nil {
					tb.Errorf("%s cannot be read: the test does not know what to look for: %v", what, err)
				}
				add(what+" classKey", []byte(e.ClassKey.String()))
			}
		}
	}
	for key, r := range o.rsp.GetDesired().GetResources() {
		of("desired "+key, r.GetResource())
	}
	for key, r := range o.req.GetObserved().GetResources() {
		of("observed "+key, r.GetResource())
	}
	for name, rs := range o.req.GetRequiredResources() {
		for _, r := range rs.GetItems() {
			of("required "+name, r.GetResource())
		}
	}
	add("the new seed", newSeed)
	// Each value in every form that it may slip out in.
	for what, b := range out {
		raw := b
		if d, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b))); err == nil && len(d) == 32 {
			raw = d
			out[what+", raw"] = raw
		}
		if len(raw) == 32 {
			out[what+", in hex"] = []byte(hex.EncodeToString(raw))
			out[what+", as numbers"] = []byte(strings.Trim(fmt.Sprintf("%d", raw), "[]"))
			out[what+", quoted"] = []byte(strings.Trim(fmt.Sprintf("%q", string(raw)), `"`))
		}
		out[what+", in base64"] = []byte(base64.StdEncoding.EncodeToString(raw))
		out[what+", in base64 again"] = []byte(base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(raw))))
	}
	return out
}

// noSecrets: private values stand in the data of Secrets only: not in status,
// conditions, results, other objects, labels or logs.
func noSecrets(tb testing.TB, o outcome) (bad []string) {
	tb.Helper()
	open := proto.CloneOf(o.rsp)
	for _, r := range open.GetDesired().GetResources() {
		if r.GetResource().GetFields()["kind"].GetStringValue() == "Secret" {
			delete(r.GetResource().GetFields(), "data")
			if r.GetResource().GetFields()["stringData"] != nil {
				bad = append(bad, "a Secret has stringData, which API servers do not keep track of")
			}
		}
		if len(r.GetConnectionDetails()) > 0 {
			bad = append(bad, "an object has connection details")
		}
	}
	wire := canonical(tb, open)
	text, err := protojson.Marshal(open)
	if err != nil {
		tb.Fatal(err)
	}
	for what, b := range secrets(tb, o) {
		for where, in := range map[string][]byte{"the response": wire, "the response as text": text, "the logs": []byte(o.logs)} {
			if bytes.Contains(in, b) {
				bad = append(bad, fmt.Sprintf("%s has %s", where, what))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// wellFormedKeys: every key in a configuration is one, and each configuration
// has the gateway's.
func wellFormedKeys(_ testing.TB, o outcome) (bad []string) {
	public := statusOf(o.rsp)["publicKey"].GetStringValue()
	if isPeer(o) {
		public = statusOf(o.rsp)["gateway"].GetStructValue().GetFields()["publicKey"].GetStringValue()
	}
	for name, r := range o.rsp.GetDesired().GetResources() {
		for key, b := range secretData(r.GetResource()) {
			if e, err := wireguard.DecodeEnrolment(b); key == wireguard.EnrolmentKey && (err != nil || e.GatewayPublicKey.String() != public) {
				bad = append(bad, fmt.Sprintf("%s of %s has another public key than status", key, name))
			}
			if filepath.Ext(key) != ".conf" {
				continue
			}
			if len(strings.TrimSuffix(key, ".conf")) > 15 {
				bad = append(bad, key+" is too long for the name of an interface")
			}
			for line := range strings.Lines(string(b)) {
				k, v, _ := strings.Cut(strings.TrimSpace(line), " = ")
				if strings.HasSuffix(k, "Key") {
					if _, err := wireguard.ParseKey(v); err != nil {
						bad = append(bad, fmt.Sprintf("%s of %s: %s is no key", key, name, k))
					}
				}
				if k == "PublicKey" && v != public {
					bad = append(bad, fmt.Sprintf("%s of %s has another public key than status", key, name))
				}
			}
		}
	}
	return bad
}
