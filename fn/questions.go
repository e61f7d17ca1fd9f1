package fn

import (
	"encoding/base64"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// requireSecretPrefix begins the names of what the function requires to know of
// Secrets that the user refers to.
const requireSecretPrefix = "secret."

// questions are requirements, some of which are asked only when others are
// answered. Crossplane answers those of one response before it runs the function
// again, and may have answered before it is asked, since it remembers what was
// asked last time. So where a requirement asks for one object, its name stands for
// that object alone: the answer about another one, or that there is none, would pass
// for its own.
type questions struct {
	req *fnv1.RunFunctionRequest
	rsp *fnv1.RunFunctionResponse
}

func newQuestions(req *fnv1.RunFunctionRequest, rsp *fnv1.RunFunctionResponse) *questions {
	rsp.Requirements = &fnv1.Requirements{Resources: map[string]*fnv1.ResourceSelector{}}
	return &questions{req: req, rsp: rsp}
}

// answered tells whether everything that was asked so far has an answer. What
// does not exist is answered too, with nothing.
func (q *questions) answered() bool {
	for key := range q.rsp.GetRequirements().GetResources() {
		if _, ok := q.req.GetRequiredResources()[key]; !ok {
			return false
		}
	}
	for key := range q.rsp.GetRequirements().GetSchemas() {
		if _, ok := q.req.GetRequiredSchemas()[key]; !ok {
			return false
		}
	}
	return true
}

// many asks for all objects that a selector matches.
func (q *questions) many(key string, s *fnv1.ResourceSelector) []*fnv1.Resource {
	q.rsp.GetRequirements().Resources[key] = s
	return q.req.GetRequiredResources()[key].GetItems()
}

// one asks for one object by its name. It is nil where there is none.
func (q *questions) one(key string, s *fnv1.ResourceSelector) *structpb.Struct {
	for _, item := range q.many(key, s) {
		return item.GetResource()
	}
	return nil
}

// secret asks for the data of a Secret. It is nil where there is none.
func (q *questions) secret(key, namespace, name string) map[string][]byte {
	for _, item := range q.many(key, secretSelector(namespace, name)) {
		return secretData(item.GetResource())
	}
	return nil
}

// secretSelector selects one Secret.
func secretSelector(namespace, name string) *fnv1.ResourceSelector {
	return &fnv1.ResourceSelector{
		ApiVersion: "v1",
		Kind:       "Secret",
		Namespace:  &namespace,
		Match:      &fnv1.ResourceSelector_MatchName{MatchName: name},
	}
}

// missingKinds are kinds that the cluster does not have.
type missingKinds map[schema.GroupVersionKind]bool

// kind asks whether the cluster has a kind, and adds it to those that it lacks
// where it does not.
func (q *questions) kind(key string, gvk schema.GroupVersionKind, lacks missingKinds) {
	if q.rsp.GetRequirements().GetSchemas() == nil {
		q.rsp.Requirements.Schemas = map[string]*fnv1.SchemaSelector{}
	}
	q.rsp.GetRequirements().Schemas[key] = &fnv1.SchemaSelector{ApiVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
	if answer, answered := q.req.GetRequiredSchemas()[key]; answered && answer.GetOpenapiV3() == nil {
		lacks[gvk] = true
	}
}

// secretData reads the data of a Secret. It is never nil. What is no base64
// cannot come from an API server, and is left as empty.
func secretData(s *structpb.Struct) map[string][]byte {
	fields := s.GetFields()["data"].GetStructValue().GetFields()
	data := make(map[string][]byte, len(fields))
	for k, v := range fields {
		b, err := base64.StdEncoding.DecodeString(v.GetStringValue())
		if err != nil {
			b = nil
		}
		data[k] = b
	}
	return data
}
