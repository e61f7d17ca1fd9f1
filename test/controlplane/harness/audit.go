package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// auditPolicy records every write, without its content.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
`

// Write is one request to change something, from the API server's audit log.
type Write struct {
	Verb        string
	User        string
	Agent       string
	Group       string
	Resource    string
	Subresource string
	Namespace   string
	Name        string
	Code        int
	DryRun      bool
	Time        time.Time
}

// Object names what is written: "apps/deployments vpn/home-wireguard".
func (w Write) Object() string {
	s := w.Resource
	if w.Group != "" {
		s = w.Group + "/" + s
	}
	if w.Subresource != "" {
		s += "/" + w.Subresource
	}
	return s + " " + w.Namespace + "/" + w.Name
}

func (w Write) byCore() bool {
	return w.User == "system:serviceaccount:"+systemNamespace+":crossplane" && !w.DryRun
}

// Audit reads the API server's audit log.
type Audit struct {
	file string

	mu     sync.Mutex
	offset int64
	writes []Write
	// perNamespace counts them, without events.
	perNamespace map[string]int
}

// read takes in what was added to the log.
func (a *Audit) read() error {
	f, err := os.Open(a.file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return err
	}
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil // A line that is not complete yet is read the next time.
		}
		if err != nil {
			return err
		}
		a.offset += int64(len(line))
		e := struct {
			Stage                    string    `json:"stage"`
			Verb                     string    `json:"verb"`
			RequestURI               string    `json:"requestURI"`
			UserAgent                string    `json:"userAgent"`
			RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
			User                     struct {
				Username string `json:"username"`
			} `json:"user"`
			ObjectRef struct {
				Resource    string `json:"resource"`
				Namespace   string `json:"namespace"`
				Name        string `json:"name"`
				APIGroup    string `json:"apiGroup"`
				Subresource string `json:"subresource"`
			} `json:"objectRef"`
			ResponseStatus struct {
				Code int `json:"code"`
			} `json:"responseStatus"`
		}{}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.Stage != "ResponseComplete" {
			continue
		}
		a.writes = append(a.writes, Write{
			Verb: e.Verb, User: e.User.Username, Agent: e.UserAgent, Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource,
			Subresource: e.ObjectRef.Subresource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
			Code: e.ResponseStatus.Code, DryRun: strings.Contains(e.RequestURI, "dryRun="), Time: e.RequestReceivedTimestamp,
		})
		if e.ObjectRef.Resource != "events" {
			a.perNamespace[e.ObjectRef.Namespace]++
		}
	}
}

// Mark is a place in the log.
type Mark int

// Mark returns the present end of the log.
func (c *Cluster) Mark() (Mark, error) {
	c.audit.mu.Lock()
	defer c.audit.mu.Unlock()
	err := c.audit.read()
	return Mark(len(c.audit.writes)), err
}

// Writes returns those of Crossplane's core since a mark.
func (c *Cluster) Writes(since Mark) ([]Write, error) {
	c.audit.mu.Lock()
	defer c.audit.mu.Unlock()
	if err := c.audit.read(); err != nil {
		return nil, err
	}
	var out []Write
	for _, w := range c.audit.writes[since:] {
		if w.byCore() {
			out = append(out, w)
		}
	}
	return out, nil
}

// Reconciles counts what Crossplane's reconciles of one composite resource have
// written to it since a mark: each first patches what it refers to, and writes its
// status last. One that fails writes the status alone.
func (c *Cluster) Reconciles(since Mark, resource, namespace, name string) (refs, status int, err error) {
	writes, err := c.Writes(since)
	for _, w := range writes {
		switch {
		case w.Resource != resource || w.Namespace != namespace || w.Name != name:
		case w.Subresource == "status":
			status++
		case w.Verb == "patch":
			refs++
		}
	}
	return refs, status, err
}

// WaitQuietIn waits until nothing is written to some namespaces any more. Other
// tests may go on in others.
func (c *Cluster) WaitQuietIn(ctx context.Context, namespaces ...string) error {
	last, since := -1, time.Now()
	return c.Wait(ctx, fmt.Sprintf("quiet in %v", namespaces), func() error {
		n, err := c.WritesIn(namespaces...)
		if err != nil {
			return err
		}
		if n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < quietFor {
			return errors.New("there are still writes")
		}
		return nil
	})
}

// WritesIn counts what anybody has written to some namespaces. Events do not
// count: they are written late.
func (c *Cluster) WritesIn(namespaces ...string) (int, error) {
	c.audit.mu.Lock()
	defer c.audit.mu.Unlock()
	err := c.audit.read()
	n := 0
	for _, namespace := range namespaces {
		n += c.audit.perNamespace[namespace]
	}
	return n, err
}
