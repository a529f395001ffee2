// Command kube is a whole Kubernetes in one binary: `kube <part> <arguments>`, or a link to it named <part>.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// command runs a part that is a cobra command and ends the process with its exit code.
func command(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}

var parts = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kube-proxy":              command(proxy.NewProxyCommand),
	"kubectl":                 command(kubectl.NewDefaultKubectlCommand),
	"coredns":                 coredns,
	"local-storage":           localStorage,
}

// The part is named by the program's own name (a link to it), or else by the first argument.
func main() {
	for skipped := range min(2, len(os.Args)) {
		if run, known := parts[filepath.Base(os.Args[skipped])]; known {
			os.Args = os.Args[skipped:]
			run()
			return
		}
	}
	names := slices.Sorted(maps.Keys(parts))
	fmt.Fprintf(os.Stderr, "usage: kube <part> <arguments>; the parts are %s\n", strings.Join(names, ", "))
	os.Exit(2)
}
