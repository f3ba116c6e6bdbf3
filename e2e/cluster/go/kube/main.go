// kube is every program of the local cluster in one static binary: the Kubernetes components share most of
// their code, so one link of 150 MB takes the place of seven of 70 MB each. Which one runs is decided by
// the name it is called by (build.sh makes a symbolic link for each), or else by the first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// program finds what to run under a name; nil when there is nothing of that name.
func program(name string) func() {
	switch name {
	case "etcd":
		return func() { etcdmain.Main(os.Args) }
	case "coredns":
		return serveDNS
	case "kubectl":
		return runKubectl
	case "kube-apiserver":
		return component(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		return component(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		return component(scheduler.NewSchedulerCommand())
	case "kube-proxy":
		return component(proxy.NewProxyCommand())
	case "kubelet":
		return component(kubelet.NewKubeletCommand(context.Background()))
	}
	return nil
}

func component(command *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command)) }
}

func runKubectl() {
	// kubectl prints its own errors, with the exit status that scripts expect.
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

func main() {
	if run := program(filepath.Base(os.Args[0])); run != nil {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run := program(os.Args[1]); run != nil {
			os.Args = slices.Delete(os.Args, 0, 1)
			run()
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kube etcd|coredns|kubectl|kubelet|kube-apiserver|kube-controller-manager|kube-scheduler|kube-proxy [flags]")
	os.Exit(2)
}
