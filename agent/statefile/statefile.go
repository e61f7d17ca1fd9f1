// Package statefile writes the files by which an agent remembers over a restart.
package statefile

import (
	"os"
	"path/filepath"
)

// Write replaces the file. A crash leaves the old one or the new one, never half
// of one.
func Write(path string, b []byte) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
