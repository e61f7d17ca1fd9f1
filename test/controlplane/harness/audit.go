package harness

import (
	"bufio"
	"encoding/json"
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

// Audit reads the API server's audit log.
type Audit struct {
	file string

	mu     sync.Mutex
	offset int64
	writes []Write
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
		if w.User == "system:serviceaccount:"+systemNamespace+":crossplane" && !w.DryRun {
			out = append(out, w)
		}
	}
	return out, nil
}
