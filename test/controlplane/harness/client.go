package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Manager is the field manager of Apply.
const Manager = "user"

// Apply applies an object, as `kubectl apply --server-side --force-conflicts`
// does.
func (c *Cluster) Apply(ctx context.Context, o *unstructured.Unstructured) error {
	o = o.DeepCopy()
	err := c.Client.Patch(ctx, o, client.Apply, client.FieldOwner(Manager), client.ForceOwnership) //nolint:staticcheck // Takes any object.
	if err != nil {
		return fmt.Errorf("cannot apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// ApplyYAML applies all objects of a text.
func (c *Cluster) ApplyYAML(ctx context.Context, text string) error {
	objects, err := decodeYAML([]byte(text))
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := c.Apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// Get returns an object as it is.
func (c *Cluster) Get(ctx context.Context, apiVersion, kind, namespace, name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
	return o, err
}

// MergePatch changes some fields of an object.
func (c *Cluster) MergePatch(ctx context.Context, o client.Object, patch string) error {
	return c.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// Condition returns a condition of an object, nil where it has none of the type.
func Condition(o *unstructured.Unstructured, conditionType string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == conditionType {
			return m
		}
	}
	return nil
}

// HasCondition returns an error where a condition is not as wanted. An empty
// reason is any.
func HasCondition(o *unstructured.Unstructured, conditionType, status, reason string) error {
	c := Condition(o, conditionType)
	if c["status"] != status || (reason != "" && c["reason"] != reason) {
		return fmt.Errorf("%s %s: condition %s is %v, reason %v: %v", o.GetKind(), o.GetName(), conditionType, c["status"], c["reason"], c["message"])
	}
	return nil
}

// Command returns a command that has yet to be run with Output: in the cluster's
// network, at the root of the repository, with the pinned tools on its PATH and
// all rights in the cluster.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	path := c.bin + string(os.PathListSeparator) + os.Getenv("PATH")
	cmd := exec.CommandContext(ctx, name, args...)
	if !strings.Contains(name, "/") {
		if p, err := exec.LookPath(c.bin + "/" + name); err == nil {
			cmd.Path, cmd.Err = p, nil
		}
	}
	cmd.Dir = c.Root
	cmd.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG="+c.Kubeconfig)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Output runs a command of Command, and returns all that it prints.
func (c *Cluster) Output(cmd *exec.Cmd) (string, error) {
	out, err := c.output(cmd)
	return string(out), err
}

// StartCommand starts a command of Command, which goes on in the cluster's
// network.
func (c *Cluster) StartCommand(cmd *exec.Cmd) error {
	return c.network.start(cmd)
}

// NetworkNamespace is a file that names the cluster's network namespace while it
// runs, for those who put a device or a link into it.
func (c *Cluster) NetworkNamespace() string { return c.network.path }
