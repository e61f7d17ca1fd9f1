// Package input holds the function's input.
package input

//go:generate go tool -modfile=../tools/generate/go.mod controller-gen object crd:crdVersions=v1,headerFile=header.yaml.txt paths=./... output:crd:artifacts:config=../package/function/input
