# Settings of the local cluster, in one place. Source this file (bash) to use the cluster:
#   source e2e/cluster/env.sh && kubectl get pods -A
REMORA_CLUSTER_SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REMORA_CLUSTER=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/remora/cluster

# KUBERNETES chooses another version of Kubernetes than that of go/kube, out of kubernetes/: KUBERNETES=1.36. Its programs are
# built in a copy of build.sh and go/, with the modules of that version.
REMORA_BUILD_SOURCE=$REMORA_CLUSTER_SOURCE
if [ -n "${KUBERNETES-}" ] && [ -d "$REMORA_CLUSTER_SOURCE/kubernetes" ]; then
  if [ ! -d "$REMORA_CLUSTER_SOURCE/kubernetes/$KUBERNETES" ]; then
    echo "error: KUBERNETES is $KUBERNETES, and there are modules of $(cd "$REMORA_CLUSTER_SOURCE/kubernetes" && echo *) only" >&2
    exit 1
  fi
  REMORA_BUILD_SOURCE=$REMORA_CLUSTER/kubernetes-$KUBERNETES-$(cd "$REMORA_CLUSTER_SOURCE" &&
    find build.sh env.sh say.sh go "kubernetes/$KUBERNETES" -type f -print0 | sort -z |
    xargs -0 sha256sum | sha256sum | cut -c 1-16)
  if [ ! -d "$REMORA_BUILD_SOURCE" ]; then
    mkdir -p "$REMORA_CLUSTER"
    remora_copy=$(mktemp -d "$REMORA_CLUSTER/source-XXXXXX")
    (cd "$REMORA_CLUSTER_SOURCE" && cp -r build.sh env.sh say.sh go "$remora_copy" &&
      cp "kubernetes/$KUBERNETES"/* "$remora_copy/go/kube")
    mv -T "$remora_copy" "$REMORA_BUILD_SOURCE" 2>/dev/null || rm -rf "$remora_copy" # another process was faster
  fi
fi

# Programs are stored by the hash of their sources; all state of a cluster is in one directory.
REMORA_BUILD=$REMORA_CLUSTER/$(cd "$REMORA_BUILD_SOURCE" && find build.sh go -type f -print0 | sort -z |
  xargs -0 sha256sum | sha256sum | cut -c 1-16)
REMORA_BIN=$REMORA_BUILD/bin
REMORA_TOOLS=$REMORA_BUILD/tools
REMORA_RUN=$REMORA_CLUSTER/run
REMORA_LOG=$REMORA_RUN/log
REMORA_PKI=$REMORA_RUN/pki
REMORA_CONF=$REMORA_RUN/conf

# All processes listen on the bridge's own address or on loopback, on ports that Kubernetes does not normally use, so
# that another cluster on the machine is not affected.
REMORA_NODE=remora
REMORA_BRIDGE=remora0
REMORA_NODE_IP=10.213.0.1
REMORA_POD_CIDR=10.213.0.0/24
REMORA_SERVICE_CIDR=10.214.0.0/16
REMORA_SERVICE_IP=10.214.0.1
REMORA_API_PORT=16443
REMORA_KUBELET_PORT=16250
REMORA_KUBELET_HEALTH_PORT=16248
REMORA_PROXY_METRICS_PORT=16249
REMORA_PROXY_HEALTH_PORT=16256
REMORA_ETCD_PORT=16379
REMORA_ETCD_PEER_PORT=16380
REMORA_CGROUP=remora

# Registry prefix of the images: this default, unless another cluster pulls them from a registry.
export REMORA_IMAGE_PREFIX=${REMORA_IMAGE_PREFIX:-remora.local}
export REMORA_IMAGE_TAG=${REMORA_IMAGE_TAG:-dev}

export KUBECONFIG=$REMORA_RUN/admin.kubeconfig
export KUBECACHEDIR=$REMORA_RUN/kubectl-cache
export CONTAINERD_ADDRESS=$REMORA_RUN/containerd.sock CONTAINERD_NAMESPACE=k8s.io
# The PATH of some root shells lacks the sbin directories.
case ":$PATH:" in *":$REMORA_BIN:"*) ;; *) export PATH=$REMORA_BIN:$PATH:/usr/sbin:/sbin ;; esac
