// Command run becomes the container that its one argument tells of, as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/wireguardgateway/function-wireguard-gateway/test/injection/container"
)

func main() {
	s := container.Spec{}
	err := json.Unmarshal([]byte(os.Args[1]), &s)
	if err == nil {
		err = s.Run()
	}
	fmt.Fprintln(os.Stderr, "cannot run container:", err)
	os.Exit(125)
}
