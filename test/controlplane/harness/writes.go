package harness

// AllWrites returns those of everybody since a mark, the tests' own among them.
func (c *Cluster) AllWrites(since Mark) ([]Write, error) {
	c.audit.mu.Lock()
	defer c.audit.mu.Unlock()
	if err := c.audit.read(); err != nil {
		return nil, err
	}
	return append([]Write(nil), c.audit.writes[since:]...), nil
}
