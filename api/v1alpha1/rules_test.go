package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// oldest are the rules that the oldest supported Kubernetes, 1.31, takes in new
// definitions: those of the release before, so that it can be rolled back.
var oldest = version.MajorMinor(1, 30)

// The oldest supported Kubernetes knows every function that rules call. And
// there is room left in what all rules together may cost.
func TestRules(t *testing.T) {
	env := environment.MustBaseEnvSet(oldest)
	for kind, crd := range crds(t) {
		t.Run(kind, func(t *testing.T) {
			var rules int
			var total, dearest uint64
			for _, n := range schemaOf(t, crd) {
				if len(n.schema.XValidations) == 0 {
					continue
				}
				s, err := structuralschema.NewStructural(n.schema)
				if err != nil {
					t.Fatal(err)
				}
				results, err := cel.Compile(s, model.SchemaDeclType(s, n.path == ""), celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range results {
					rules++
					rule := n.schema.XValidations[i]
					if r.Error != nil || r.MessageExpressionError != nil {
						t.Errorf("%s: Kubernetes 1.31 does not compile %q: %v %v", n.path, rule.Rule, r.Error, r.MessageExpressionError)
					}
					if rule.Message == "" {
						t.Errorf("%s: %q has no message for when the other one cannot be had", n.path, rule.Rule)
					}
					// Kubernetes 1.31 panics where it meets a format that is no literal.
					if strings.Contains(strings.ReplaceAll(rule.MessageExpression, "'.format(", ""), ".format(") {
						t.Errorf("%s: the format of a message is not a literal: %s", n.path, rule.MessageExpression)
					}
					cost := r.MaxCost
					if n.cel.MaxCardinality != nil {
						cost *= *n.cel.MaxCardinality
					}
					total += cost + r.MessageExpressionMaxCost
					dearest = max(dearest, cost, r.MessageExpressionMaxCost)
				}
			}
			t.Logf("%d rules cost %d of %d, the dearest %d of %d",
				rules, total, validation.StaticEstimatedCRDCostLimit, dearest, validation.StaticEstimatedCostLimit)
			if total > validation.StaticEstimatedCRDCostLimit/2 {
				t.Errorf("all rules together may cost %d, more than half of what is allowed: a small change would break", total)
			}
		})
	}
}
