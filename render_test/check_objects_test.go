package render_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ours are the objects that this function desires, by key.
func ours(o outcome) map[string]*structpb.Struct {
	out := map[string]*structpb.Struct{}
	for key, r := range o.rsp.GetDesired().GetResources() {
		if o.req.GetDesired().GetResources()[key] == nil {
			out[key] = r.GetResource()
		}
	}
	return out
}

// walk visits all values below one, with their paths.
func walk(path string, v *structpb.Value, visit func(path string, v *structpb.Value)) {
	visit(path, v)
	for k, f := range v.GetStructValue().GetFields() {
		walk(path+"."+k, f, visit)
	}
	for i, f := range v.GetListValue().GetValues() {
		walk(fmt.Sprintf("%s[%d]", path, i), f, visit)
	}
}

// notOurs are fields of metadata that only the API server writes.
var notOurs = []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "ownerReferences", "selfLink", "generateName", "finalizers", "deletionTimestamp"}

// cleanObjects: nothing that would take ownership of what is not ours.
func cleanObjects(_ testing.TB, o outcome) (bad []string) {
	for key, s := range ours(o) {
		if s.GetFields()["status"] != nil {
			bad = append(bad, key+" has a status")
		}
		for _, f := range notOurs {
			if metadata(s)[f] != nil {
				bad = append(bad, key+" has metadata."+f)
			}
		}
		walk(key, structpb.NewStructValue(s), func(path string, v *structpb.Value) {
			if v.GetKind() == nil {
				bad = append(bad, path+" is nothing")
			}
			if _, ok := v.GetKind().(*structpb.Value_NullValue); ok {
				bad = append(bad, path+" is null")
			}
			for _, field := range []string{"creationTimestamp", "managedFields", "resourceVersion"} {
				if strings.HasSuffix(path, "."+field) {
					bad = append(bad, path+" is not ours to say")
				}
			}
			for _, s := range []string{"%!", "<no value>", "<nil>", "0xc0"} {
				if strings.Contains(v.GetStringValue(), s) && !strings.Contains(path, ".data.") {
					bad = append(bad, fmt.Sprintf("%s says %q", path, v.GetStringValue()))
				}
			}
		})
	}
	for key := range statusOf(o.rsp) {
		walk("status."+key, statusOf(o.rsp)[key], func(path string, v *structpb.Value) {
			if _, ok := v.GetKind().(*structpb.Value_NullValue); ok {
				bad = append(bad, path+" is null")
			}
		})
	}
	return bad
}

// emptyAllowed are fields where an empty object says something.
var emptyAllowed = regexp.MustCompile(`\.(emptyDir|podSelector|namespaceSelector|selector|securityContext|persistentVolumeClaim|labelSelector|nodeAffinity|podAffinity|podAntiAffinity|affinity)$|\.from\[\d+\]$|\.toEndpoints\[\d+\]$`)

// meaningfulEmpties: no empty object or list that says nothing, and none lost
// that says something: emptyDir, and a selector of everything.
func meaningfulEmpties(_ testing.TB, o outcome) (bad []string) {
	for key, s := range ours(o) {
		walk(key, structpb.NewStructValue(s), func(path string, v *structpb.Value) {
			if m := v.GetStructValue(); m != nil && len(m.GetFields()) == 0 && !emptyAllowed.MatchString(path) {
				bad = append(bad, path+" is empty and says nothing")
			}
			if l := v.GetListValue(); l != nil && len(l.GetValues()) == 0 {
				bad = append(bad, path+" is an empty list")
			}
			if volume := regexp.MustCompile(`\.volumes\[\d+\]$`); volume.MatchString(path) && len(v.GetStructValue().GetFields()) < 2 {
				bad = append(bad, path+" is a volume of nothing")
			}
		})
	}
	return bad
}

// zeroAllowed are fields whose zero we mean, or the user did.
var zeroAllowed = map[string]bool{
	"automountServiceAccountToken":  true,
	"enableServiceLinks":            true,
	"allowPrivilegeEscalation":      true,
	"runAsUser":                     true,
	"terminationGracePeriodSeconds": true,
	"group":                         true, // of a reference into the core group
}

// noZeros: a zero that nobody asked for would be a field that we own and defend
// against whoever means something by it.
func noZeros(_ testing.TB, o outcome) (bad []string) {
	for key, s := range ours(o) {
		walk(key, structpb.NewStructValue(s), func(path string, v *structpb.Value) {
			field := path[strings.LastIndexByte(path, '.')+1:]
			zero := false
			switch k := v.GetKind().(type) {
			case *structpb.Value_BoolValue:
				zero = !k.BoolValue
			case *structpb.Value_NumberValue:
				zero = k.NumberValue == 0
			case *structpb.Value_StringValue:
				zero = k.StringValue == "" && !strings.Contains(path, "apiGroups")
			}
			if zero && !zeroAllowed[field] && !ofUser(path) {
				bad = append(bad, path+" is zero, which nobody asked for")
			}
		})
	}
	return bad
}

// ofUser tells whether a field is in what the user wrote in Kubernetes' own
// types.
func ofUser(path string) bool {
	return regexp.MustCompile(`\.(annotations|labels|tolerations|affinity|topologySpreadConstraints)\b`).MatchString(path)
}

var keyPattern = regexp.MustCompile(`^[a-z0-9-]+$`)

// goodNames: every object has a name that its kind takes, and no two are the
// same object.
func goodNames(_ testing.TB, o outcome) (bad []string) {
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(ours(o))) {
		s := ours(o)[key]
		if !keyPattern.MatchString(key) {
			bad = append(bad, fmt.Sprintf("the key %q breaks generated names", key))
		}
		f := s.GetFields()
		name, kind := metadata(s)["name"].GetStringValue(), f["kind"].GetStringValue()
		if f["apiVersion"].GetStringValue() == "" || kind == "" {
			bad = append(bad, key+" has no apiVersion and kind")
		}
		var errs []string
		switch kind {
		case "Service":
			errs = validation.IsDNS1035Label(name)
		case "Deployment":
			// The names of its pods are host names.
			errs = validation.IsDNS1123Label(name)
		default:
			errs = validation.IsDNS1123Subdomain(name)
		}
		if len(errs) > 0 {
			bad = append(bad, fmt.Sprintf("%s has the name %q: %v", key, name, errs))
		}
		id := strings.Join([]string{f["apiVersion"].GetStringValue(), kind, metadata(s)["namespace"].GetStringValue(), name}, " ")
		if other, ok := seen[id]; ok {
			bad = append(bad, fmt.Sprintf("%s and %s are both %s", key, other, id))
		}
		seen[id] = key

		labels := metadata(s)["labels"].GetStructValue().GetFields()
		if labels["app.kubernetes.io/name"].GetStringValue() != "wireguard-gateway" || labels["app.kubernetes.io/instance"] == nil || labels["wireguardgateway.io/gateway"] == nil {
			bad = append(bad, key+" lacks our labels")
		}
		for k, v := range labels {
			if len(validation.IsQualifiedName(k)) > 0 || len(validation.IsValidLabelValue(v.GetStringValue())) > 0 {
				bad = append(bad, fmt.Sprintf("%s has the label %s=%s", key, k, v.GetStringValue()))
			}
		}
	}
	return bad
}

// clusterScoped are kinds that a namespaced composite resource may not compose.
var clusterScoped = regexp.MustCompile(`^(Cluster.*|Namespace|Node|PersistentVolume|PriorityClass|CustomResourceDefinition|.*WebhookConfiguration|.*AdmissionPolicy.*)$`)

// goodNamespaces: a namespaced composite resource says none, since Crossplane
// warns of another in each loop; a cluster-scoped one has to say its claim's.
func goodNamespaces(_ testing.TB, o outcome) (bad []string) {
	xr := o.req.GetObserved().GetComposite().GetResource()
	own := metadata(xr)["namespace"].GetStringValue()
	claim := xr.GetFields()["spec"].GetStructValue().GetFields()["claimRef"].GetStructValue().GetFields()["namespace"].GetStringValue()
	for key, s := range ours(o) {
		switch ns := metadata(s)["namespace"].GetStringValue(); {
		case own != "" && ns != "":
			bad = append(bad, key+" says its namespace, which Crossplane knows")
		case own == "" && ns != claim:
			bad = append(bad, fmt.Sprintf("%s is in namespace %q, and the claim in %q", key, ns, claim))
		}
		if kind := s.GetFields()["kind"].GetStringValue(); clusterScoped.MatchString(kind) {
			bad = append(bad, fmt.Sprintf("%s is a %s, which lives in no namespace", key, kind))
		}
	}
	return bad
}
