package fn

import (
	"testing"
	"time"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/response"
)

func TestSetTTL(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	state := func(keys ...string) *fnv1.State {
		s := &fnv1.State{Resources: map[string]*fnv1.Resource{}}
		for _, k := range keys {
			s.Resources[k] = &fnv1.Resource{}
		}
		return s
	}
	for reason, tc := range map[string]struct {
		observed, desired *fnv1.State
		expiry            time.Time
		want              time.Duration
	}{
		"everything is there":               {state("a", "b"), state("a", "b"), time.Time{}, time.Minute},
		"one object is yet to be seen":      {state("a"), state("a", "b"), time.Time{}, settleTTL},
		"one object is on its way out":      {state("a", "b"), state("a"), time.Time{}, time.Minute},
		"a peer expires":                    {state("a"), state("a"), now.Add(20 * time.Second), 20 * time.Second},
		"a peer expires before all is seen": {state(), state("a"), now.Add(3 * time.Second), 3 * time.Second},
		"a peer expires at once":            {state("a"), state("a"), now, time.Second},
	} {
		t.Run(reason, func(t *testing.T) {
			req := &fnv1.RunFunctionRequest{Observed: tc.observed}
			rsp := response.To(req, time.Hour)
			rsp.Desired = tc.desired
			setTTL(req, rsp, time.Minute, tc.expiry, now)
			if got := rsp.GetMeta().GetTtl().AsDuration(); got != tc.want {
				t.Errorf("want %v, got %v", tc.want, got)
			}
		})
	}
}
