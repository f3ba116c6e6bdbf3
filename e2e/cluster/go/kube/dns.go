package main

import (
	"log"
	"os"

	"github.com/coredns/caddy"
	_ "github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

// serveDNS runs CoreDNS with the Corefile named by its only argument. It does without CoreDNS's own main,
// whose init functions register flags (-version among them) that collide with those of the components.
func serveDNS() {
	if len(os.Args) != 2 {
		log.Fatal("usage: coredns COREFILE")
	}
	corefile, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatalf("coredns: cannot read its configuration: %v", err)
	}
	caddy.AppName = "CoreDNS"
	caddy.TrapSignals()
	server, err := caddy.Start(caddy.CaddyfileInput{Filepath: os.Args[1], Contents: corefile, ServerTypeName: "dns"})
	if err != nil {
		log.Fatalf("coredns: cannot start: %v", err)
	}
	server.Wait()
}
