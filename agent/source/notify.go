package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// notify sends whenever something in the file's directory changes. That is how
// the kubelet's new versions show: it switches a link beside the file.
func notify(ctx context.Context, path string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot watch files: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	const events = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE | unix.IN_DELETE | unix.IN_MOVED_FROM
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), events); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot watch %s: %w", filepath.Dir(path), err)
	}
	context.AfterFunc(ctx, func() { _ = f.Close() })
	changed := make(chan struct{}, 1)
	go func() {
		// Which file it was does not matter, so the events are not looked at.
		buffer := make([]byte, 4096)
		for {
			if _, err := f.Read(buffer); err != nil {
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return changed, nil
}
