// Package monitoring tests the alerts and the dashboard in package/cluster with
// Prometheus's own parser and engine, and everything that is for the Prometheus
// operator by its own definitions. It is a module of its own, so that nothing
// else depends on them.
package monitoring
