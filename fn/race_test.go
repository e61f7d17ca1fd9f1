//go:build race

package fn

func init() { raceDetector = true }
