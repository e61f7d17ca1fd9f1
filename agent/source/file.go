package source

import (
	"fmt"
	"os"
)

// maxSize is more than a Secret can hold, in bytes.
const maxSize = 4 << 20

// file reads a file again only when it has changed. The kubelet replaces files
// of a Secret by switching a link, which makes each version another file.
type file struct {
	path string
	last os.FileInfo
	err  string
}

// read returns nil where the file, or the reason why it cannot be read, is the
// same as the last time.
func (f *file) read() *Update {
	b, info, err := f.load()
	if err != nil {
		if err.Error() == f.err {
			return nil
		}
		f.err, f.last = err.Error(), nil
		return &Update{Origin: f.path, Err: err}
	}
	f.err = ""
	if info == nil {
		return nil
	}
	f.last = info
	return &Update{Origin: f.path, Data: b}
}

func (f *file) load() ([]byte, os.FileInfo, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	if f.last != nil && os.SameFile(f.last, info) && f.last.ModTime().Equal(info.ModTime()) && f.last.Size() == info.Size() {
		return nil, nil, nil
	}
	if info.Size() > maxSize {
		return nil, nil, fmt.Errorf("cannot read configuration: %s has %d bytes, more than a Secret can hold", f.path, info.Size())
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	return b, info, nil
}
