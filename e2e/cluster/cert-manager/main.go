// cert-manager runs those controllers of cert-manager that issue certificates of issuers with a key in the cluster, and
// the one that writes CAs into registrations of webhooks. cert-manager's own commands are modules of their own, which the
// module proxy does not have in a form that can be built; their controllers are packages that anybody can import. Not
// here: ACME and other issuers outside of the cluster, and cert-manager's webhook, which checks what people write.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// workers is the number of objects that a controller works on at a time, as in cert-manager's own command.
const workers = 5

func main() {
	stopped, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer release()
	ctrl.SetLogger(klog.Background())
	if err := run(stopped); err != nil {
		klog.ErrorS(err, "cert-manager's controllers have ended")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// run runs all controllers until the context ends or one of them fails. KUBECONFIG names the file of the cluster.
func run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         os.Getenv("KUBECONFIG"),
		KubernetesAPIQPS:   50,
		KubernetesAPIBurst: 100,
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	if err := issue(ctx, group, factory, shared); err != nil {
		return err
	}
	if err := inject(ctx, group, shared.RESTConfig); err != nil {
		return err
	}
	return group.Wait()
}

// issue starts the controllers of certificates, requests and issuers. Each registers itself when its package is imported.
func issue(ctx context.Context, group *errgroup.Group, factory *controller.ContextFactory, shared *controller.Context) error {
	for name, build := range controller.Known() {
		built, err := build(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		group.Go(func() error { return built.Run(workers, ctx) })
	}
	// All contexts of a factory have the same informers, which start once each controller has named those that it needs.
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.SharedInformerFactory.Start(ctx.Done())
	return nil
}

// inject starts the controller that writes the CA of a Certificate into MutatingWebhookConfigurations that name it.
func inject(ctx context.Context, group *errgroup.Group, config *rest.Config) error {
	types := runtime.NewScheme()
	if err := scheme.AddToScheme(types); err != nil {
		return err
	}
	if err := certmanager.AddToScheme(types); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  types,
		Metrics: metrics.Options{BindAddress: "0"},
		// The controller watches the metadata of Secrets and reads the few that it needs.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&core.Secret{}}}},
	})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor:        map[string]bool{cainjector.MutatingWebhookConfigurationName: true},
	})
	if err != nil {
		return err
	}
	group.Go(func() error { return manager.Start(ctx) })
	return nil
}
