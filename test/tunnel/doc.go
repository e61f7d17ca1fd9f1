// Package tunnel tests the WebSocket path with real packets: what the function
// renders is used as it is, by wg-quick, through a proxy that does what a
// Gateway does. Only wstunnel itself is a stand-in.
package tunnel
