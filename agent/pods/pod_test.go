package pods

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var equateAddrs = cmpopts.EquateComparable(netip.Addr{})

const asAPI = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"apps","uid":"uid-a","resourceVersion":"7",
	"creationTimestamp":"2027-01-01T12:00:00Z","labels":{"app":"x","wireguardgateway.io/peer":"media"},"managedFields":[{"manager":"kubelet"}]},
	"spec":{"volumes":[{"name":"e","secret":{"secretName":"media-wireguard.enrolment","defaultMode":420}},{"name":"run","emptyDir":{}},
	{"name":"other","secret":{"secretName":"books-wireguard.enrolment"}}],
	"initContainers":[{"name":"wireguard","restartPolicy":"Always","volumeMounts":[{"name":"e","readOnly":true,"mountPath":"/etc/wireguard"},{"name":"run","mountPath":"/run"}]},
	{"name":"mine","volumeMounts":[{"name":"other","mountPath":"/x"}]}],
	"containers":[{"name":"app"}],"nodeName":"n"},
	"status":{"phase":"Pending","podIP":"10.244.1.5","podIPs":[{"ip":"10.244.1.5"},{"ip":"2001:db8::5"}],"startTime":"2027-01-01T12:00:00Z"}}`

func TestDecode(t *testing.T) {
	want := media("a", "10.244.1.5", "2001:db8::5")
	if diff := cmp.Diff(want, decode([]byte(asAPI)), equateAddrs); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	for reason, b := range map[string]string{
		"what is no pod is none that is served": `[]`,
		"nor what has another shape":            `{"metadata":{"name":7}}`,
	} {
		if got := decode([]byte(b)); got.UID != "" {
			t.Errorf("%s: got %+v", reason, got)
		}
	}
	for phase, ended := range map[string]bool{"Running": false, "Succeeded": true, "Failed": true, "": false} {
		if got := decode([]byte(`{"status":{"phase":"` + phase + `","podIPs":[{"ip":"x"}]}}`)); got.Ended != ended || got.Addresses != nil {
			t.Errorf("%s: got %+v", phase, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(asAPI))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, a := range decode(b).Addresses {
			if !a.IsValid() || a.Is4In6() {
				t.Errorf("%v is no plain address", a)
			}
		}
	})
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods.json")
	f := &File{Path: path}
	if got, err := f.Read(); err != nil || got != nil {
		t.Errorf("without file: got %v, %v", got, err)
	}
	want := []Pod{media("a", "10.244.1.5", "2001:db8::5"), media("b")}
	if err := f.Write(want); err != nil {
		t.Fatal(err)
	}
	got, err := (&File{Path: path}).Read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, equateAddrs); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(want); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the same pods were written again")
	}
	if err := os.WriteFile(path, []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(); err == nil {
		t.Error("another version was read")
	}
}
