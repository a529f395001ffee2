package main

import (
	"github.com/coredns/coredns/coremain"

	// Only what a test cluster's DNS needs; the order of plugins is CoreDNS's own.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func coredns() { coremain.Run() }
