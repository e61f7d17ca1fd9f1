package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// cpuRequest is what each of our containers asks for: at rest it needs less.
const cpuRequest = "10m"

// resources returns the user's, or small requests where there are none. Nothing
// of ours has a limit by default: one on CPU would be one on throughput, and one
// on memory would kill every tunnel at once.
func resources(users corev1.ResourceRequirements, memory string) corev1.ResourceRequirements {
	if len(users.Requests) == 0 && len(users.Limits) == 0 && len(users.Claims) == 0 {
		users.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse(cpuRequest),
			corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
	return users
}
