package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker (-X main.version=…) where the build knows better than the checkout: in images, which have no .git.
var version, commit string

type versionCommand struct{}

func (*versionCommand) check(*faults) {}

func (*versionCommand) run(_ context.Context, p *process) error {
	v := buildVersion()
	_, err := fmt.Fprintf(p.stdout, "exportd %s\ncommit  %s\ngo      %s\n", v.version, v.commit, runtime.Version())
	return err
}

type buildInfo struct{ version, commit string }

func buildVersion() buildInfo {
	v := buildInfo{version: version, commit: commit}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.version == "" {
		v.version = info.Main.Version
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && v.commit == "":
			v.commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = " with changes"
		}
	}
	if v.commit == "" {
		v.commit = "unknown"
	} else if commit == "" {
		v.commit += dirty
	}
	return v
}
