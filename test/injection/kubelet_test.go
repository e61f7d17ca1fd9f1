package injection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/test/injection/container"
)

// agentImage is the image of our program. Of others, no program is run.
const agentImage = "registry.example.com/wireguard-gateway-agent:v1"

const nodeName = "node-1"

// pod is a pod of the node, of which the test is the kubelet.
type pod struct {
	w         *world
	object    *corev1.Pod // as it is stored
	net       *namespace
	addresses []netip.Addr
	port      string // the node's end of its link
	dir       string
	capture   *capture

	containers      map[string]*process
	closed, removed bool
}

// bind makes the node that of a stored pod, as the scheduler does.
func (w *world) bind(ctx context.Context, o *corev1.Pod) error {
	return w.Client.SubResource("binding").Create(ctx, o, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
}

// sandbox gives a pod its network, with the next addresses where none are
// given. Nothing runs in it yet.
func (w *world) sandbox(o *corev1.Pod, addresses ...netip.Addr) (*pod, error) {
	if len(addresses) == 0 {
		addresses = w.node.addresses()
	}
	p := &pod{w: w, object: o, addresses: addresses, containers: map[string]*process{}}
	p.port = fmt.Sprintf("p%x", addresses[0].As4())
	var err error
	if p.net, err = newNamespace(o.Namespace + "/" + o.Name); err != nil {
		return nil, err
	}
	if err = w.node.attach(p.net, p.port, addresses...); err != nil {
		return p, err
	}
	if p.capture, err = w.node.capture(p.port); err != nil {
		return p, err
	}
	p.dir, err = os.MkdirTemp(w.dir, "pod")
	return p, err
}

// report writes the pod's status, as far as others look at it.
func (p *pod) report(ctx context.Context, phase corev1.PodPhase) error {
	status := corev1.PodStatus{Phase: phase, HostIP: node4, PodIP: p.addresses[0].String()}
	for _, a := range p.addresses {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	status.HostIPs = []corev1.HostIP{{IP: node4}, {IP: node6}}
	b, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	o := p.object.DeepCopy()
	return p.w.Client.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, b))
}

// startContainer starts a container as its pod says.
func (p *pod) startContainer(ctx context.Context, c corev1.Container) (*process, error) {
	if play := p.w.played[c.Name]; play != nil {
		return nil, play(p, c)
	}
	if c.Image != agentImage || len(c.Command) > 0 {
		return nil, fmt.Errorf("container %s: nobody knows the image %s", c.Name, c.Image)
	}
	s, err := p.spec(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", c.Name, err)
	}
	cmd, err := command(s)
	if err != nil {
		return nil, err
	}
	process, err := p.net.start(cmd)
	if err == nil {
		p.containers[c.Name] = process
	}
	return process, err
}

// command runs a container in the namespace that it is started in.
func command(s container.Spec) (*exec.Cmd, error) {
	b, err := json.Marshal(s)
	return exec.Command(programs.container, string(b)), err
}

// capabilities are those that pods of ours have.
var capabilities = map[corev1.Capability]uint64{"NET_ADMIN": 1 << 12}

// spec translates a container.
func (p *pod) spec(ctx context.Context, c corev1.Container) (container.Spec, error) {
	security := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	s := container.Spec{
		Root: filepath.Join(p.dir, "root-"+c.Name), Program: programs.agent, Mounts: map[string]container.Mount{}, Args: c.Args,
		ReadOnly:        ptr.Deref(security.ReadOnlyRootFilesystem, false),
		Privileged:      ptr.Deref(security.Privileged, false),
		NoNewPrivileges: !ptr.Deref(security.AllowPrivilegeEscalation, true),
	}
	if ptr.Deref(security.RunAsUser, -1) != 0 && !s.Privileged {
		return s, errors.New("the image has no user of its own")
	}
	if !s.Privileged {
		if security.Capabilities == nil || !slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			return s, errors.New("it does not drop all capabilities")
		}
		for _, name := range security.Capabilities.Add {
			if capabilities[name] == 0 {
				return s, fmt.Errorf("it asks for the capability %s", name)
			}
			s.Capabilities |= capabilities[name]
		}
	}
	if err := os.MkdirAll(s.Root, 0o700); err != nil {
		return s, err
	}
	resolv := filepath.Join(p.dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte(resolver), 0o644); err != nil {
		return s, err
	}
	s.Mounts["/etc/resolv.conf"] = container.Mount{Source: resolv}
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(p.object.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || m.SubPath != "" {
			return s, fmt.Errorf("no volume %s", m.Name)
		}
		source, err := p.volume(ctx, p.object.Spec.Volumes[i])
		if err != nil {
			return s, fmt.Errorf("volume %s: %w", m.Name, err)
		}
		// What is mounted at /var/run is below /run in the image, if at all.
		s.Mounts[m.MountPath] = container.Mount{Source: source, ReadOnly: m.ReadOnly}
	}
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			if e.ValueFrom.FieldRef == nil {
				return s, fmt.Errorf("no value of %s", e.Name)
			}
			var err error
			if value, err = p.field(e.ValueFrom.FieldRef.FieldPath); err != nil {
				return s, err
			}
		}
		s.Env = append(s.Env, e.Name+"="+value)
	}
	s.Env = append(s.Env, "KUBERNETES_SERVICE_HOST="+apiServer, "KUBERNETES_SERVICE_PORT=443")
	return s, nil
}

// field answers the downward API.
func (p *pod) field(path string) (string, error) {
	var addresses []string
	for _, a := range p.addresses {
		addresses = append(addresses, a.String())
	}
	v, known := map[string]string{
		"metadata.name": p.object.Name, "metadata.namespace": p.object.Namespace, "metadata.uid": string(p.object.UID),
		"status.podIP": addresses[0], "status.podIPs": strings.Join(addresses, ","), "spec.nodeName": nodeName, "status.hostIP": node4,
	}[path]
	if !known {
		return "", fmt.Errorf("no field %s", path)
	}
	return v, nil
}

// volume returns where a volume of the pod is on the node, and makes it the
// first time.
func (p *pod) volume(ctx context.Context, v corev1.Volume) (string, error) {
	if v.HostPath != nil {
		return v.HostPath.Path, nil
	}
	dir := filepath.Join(p.dir, "volume-"+v.Name)
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		return dir, nil
	}
	if err != nil {
		return "", err
	}
	files := map[string][]byte{}
	switch {
	case v.EmptyDir != nil:
	case v.Secret != nil:
		o := &corev1.Secret{}
		err := p.w.Client.Get(ctx, client.ObjectKey{Namespace: p.object.Namespace, Name: v.Secret.SecretName}, o)
		if client.IgnoreNotFound(err) != nil || err != nil && !ptr.Deref(v.Secret.Optional, false) {
			return "", err
		}
		files = o.Data
	case v.Projected != nil:
		if files, err = p.projected(ctx, v.Projected); err != nil {
			return "", err
		}
	default:
		return "", errors.New("of a kind that nobody knows")
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o400); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// projected returns the files by which a container reaches the API.
func (p *pod) projected(ctx context.Context, v *corev1.ProjectedVolumeSource) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, s := range v.Sources {
		switch {
		case s.ServiceAccountToken != nil:
			r := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: s.ServiceAccountToken.ExpirationSeconds}}
			sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.object.Namespace, Name: p.object.Spec.ServiceAccountName}}
			if err := p.w.Client.SubResource("token").Create(ctx, sa, r); err != nil {
				return nil, err
			}
			files[s.ServiceAccountToken.Path] = []byte(r.Status.Token)
		case s.ConfigMap != nil && s.ConfigMap.Name == "kube-root-ca.crt":
			files["ca.crt"] = p.w.Config.CAData
		case s.DownwardAPI != nil:
			for _, item := range s.DownwardAPI.Items {
				value, err := p.field(item.FieldRef.FieldPath)
				if err != nil {
					return nil, err
				}
				files[item.Path] = []byte(value)
			}
		default:
			return nil, errors.New("a projection that nobody knows")
		}
	}
	return files, nil
}

// exec runs a probe in a container.
func (p *pod) exec(ctx context.Context, c corev1.Container, probe *corev1.Probe) error {
	if probe == nil || probe.Exec == nil || probe.Exec.Command[0] != "/agent" {
		return errors.New("no probe that the image could answer")
	}
	s, err := p.spec(ctx, c)
	if err != nil {
		return err
	}
	running := p.containers[c.Name]
	if running == nil || !running.running() {
		return errors.New("the container does not run")
	}
	s.Enter, s.Args = running.cmd.Process.Pid, probe.Exec.Command[1:]
	cmd, err := command(s)
	if err != nil {
		return err
	}
	process, err := p.net.start(cmd)
	if err != nil {
		return err
	}
	select {
	case <-process.done:
	case <-time.After(max(5*time.Second, time.Duration(probe.TimeoutSeconds)*time.Second)):
		process.kill()
		return errors.New("the probe takes too long")
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the probe ended with %d: %s", code, strings.TrimSpace(process.out.String()))
	}
	return nil
}

// httpGet makes a probe over HTTP, from the node.
func (p *pod) httpGet(port int, path string) error {
	h := http.Client{Timeout: dialTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: p.w.node.dial}}
	rsp, err := h.Get("http://" + net.JoinHostPort(p.addresses[0].String(), fmt.Sprint(port)) + path)
	if err != nil {
		return err
	}
	_ = rsp.Body.Close()
	if rsp.StatusCode != http.StatusOK {
		return errors.New(rsp.Status)
	}
	return nil
}

// sidecar is the container that admission has put into the pod.
func (p *pod) sidecar() corev1.Container { return p.object.Spec.InitContainers[0] }

// startSidecar starts the pod's sidecar.
func (p *pod) startSidecar(ctx context.Context) error {
	_, err := p.startContainer(ctx, p.sidecar())
	return err
}

// started waits until the sidecar's startup probe passes. The kubelet asks once
// a second; here it is asked at once, and again.
func (p *pod) started(ctx context.Context) error {
	_, err := poll(25*time.Millisecond, func() error { return p.exec(ctx, p.sidecar(), p.sidecar().StartupProbe) })
	if err != nil {
		err = fmt.Errorf("%s is not up: %w\n%s", p.object.Name, err, p.log())
	}
	return err
}

// log is what the sidecar says.
func (p *pod) log() string {
	if c := p.containers[p.sidecar().Name]; c != nil {
		return c.out.String()
	}
	return "it has not been started"
}

// close ends the pod's processes and takes its network away.
func (p *pod) close() {
	if p.closed {
		return
	}
	p.closed = true
	for _, c := range p.containers {
		c.kill()
	}
	_ = p.w.node.detach(p.port)
	p.net.close()
}

// remove removes the pod as users, the API server and the kubelet do together:
// it is asked to end, ends, its network goes, and its object goes.
func (p *pod) remove(ctx context.Context) error {
	if p.removed {
		return nil
	}
	p.removed = true
	if err := p.w.Client.Delete(ctx, p.object); err != nil {
		return err
	}
	for _, c := range p.containers {
		c.stop()
	}
	p.close()
	return p.w.Client.Delete(ctx, p.object, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.object.UID})
}

// create creates a pod with a label, and returns it as it is stored.
func (w *world) create(ctx context.Context, peer string) (*corev1.Pod, error) {
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", GenerateName: peer + "-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/app:v1"}}},
	}
	if peer != "" {
		o.Labels = map[string]string{labelPeer: peer}
	} else {
		o.GenerateName = "plain-"
	}
	if err := w.Client.Create(ctx, o); err != nil {
		return nil, err
	}
	stored := &corev1.Pod{}
	err := w.Client.Get(ctx, client.ObjectKeyFromObject(o), stored)
	return stored, err
}

// timing is how long a pod took.
type timing struct {
	// up is from the pod's creation until its startup probe has passed.
	up time.Duration
	// known is the part of it before the API knew the pod's addresses.
	known time.Duration
}

// run runs a pod of a peer up to where the kubelet would start its other
// containers. The API knows its addresses a while after the sidecar was started.
func (w *world) run(ctx context.Context, peer string, late time.Duration, addresses ...netip.Addr) (*pod, timing, error) {
	start, took := time.Now(), timing{}
	o, err := w.create(ctx, peer)
	if err != nil {
		return nil, took, err
	}
	if err := isInjected(o, peer); err != nil {
		return nil, took, err
	}
	if err := w.bind(ctx, o); err != nil {
		return nil, took, err
	}
	p, err := w.sandbox(o, addresses...)
	if err != nil {
		return p, took, err
	}
	if err := p.startSidecar(ctx); err != nil {
		return p, took, err
	}
	time.Sleep(late)
	if err := p.report(ctx, corev1.PodPending); err != nil {
		return p, took, err
	}
	took.known = time.Since(start)
	if err := p.started(ctx); err != nil {
		return p, took, err
	}
	took.up = time.Since(start)
	return p, took, p.report(ctx, corev1.PodRunning)
}

// isInjected says what is wrong with what admission has done to a pod.
func isInjected(o *corev1.Pod, peer string) error {
	if len(o.Spec.InitContainers) == 0 {
		return errors.New("no sidecar was put into the pod")
	}
	c := o.Spec.InitContainers[0]
	switch {
	case c.Name != "wireguard" || c.Image != agentImage:
		return fmt.Errorf("the first container is %s with %s", c.Name, c.Image)
	case c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways:
		return errors.New("the sidecar is none: it would have to end before others start")
	case c.StartupProbe == nil:
		return errors.New("the sidecar has no startup probe: others would not wait for it")
	}
	for _, other := range slices.Concat(o.Spec.InitContainers[1:], o.Spec.Containers) {
		for _, m := range other.VolumeMounts {
			if strings.HasPrefix(m.Name, "wireguard-enrolment") {
				return fmt.Errorf("container %s has the key of the class %s", other.Name, peer)
			}
		}
	}
	return nil
}

// mustRun is run for what does not fail. The pod ends with the test.
func (w *world) mustRun(t *testing.T, peer string, addresses ...netip.Addr) *pod {
	t.Helper()
	p, _, err := w.run(t.Context(), peer, 0, addresses...)
	if p != nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s said:\n%s", p.object.Name, p.log())
			}
			_ = p.remove(context.Background())
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}
