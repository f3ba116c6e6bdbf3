#!/usr/bin/env bash
# Starts the local one-node cluster, as root. Running processes stay untouched, so the script may be called at any time.
set -euo pipefail
cd "$(dirname "$0")"
. ./env.sh
. ./say.sh
. ./processes.sh
. ./credentials.sh
. ./configuration.sh
. ./host.sh

[ "$(id -u)" = 0 ] || fail "the local cluster needs root (containers, links, mounts); or set KUBECONFIG to a cluster of yours"
./packages.sh
"$REMORA_BUILD_SOURCE/build.sh"

mkdir -p "$REMORA_CLUSTER"
exec {lock}>"$REMORA_CLUSTER/lock"
flock "$lock"

# Hash of the files that a running cluster was created from. A cluster from other files is removed with all its
# contents.
made=$(cat env.sh host.sh credentials.sh configuration.sh up.sh | sha256sum | cut -c 1-16)-${REMORA_BUILD##*/}
running=
for name in "${REMORA_PROCESSES[@]}"; do
  if alive "$name"; then running=$name; fi
done
if [ -d "$REMORA_RUN" ] && [ "$(cat "$REMORA_RUN/made" 2>/dev/null)" != "$made" ]; then
  say "there is a local cluster made from other sources: starting afresh"
  REMORA_LOCKED=1 ./down.sh --purge
  running=
fi
[ -n "$running" ] || refuse_when_taken

SECONDS=0
mkdir -p "$REMORA_RUN/pid" "$REMORA_LOG" "$REMORA_PKI" "$REMORA_CONF"
echo "$made" >"$REMORA_RUN/made"
if [ ! -e "$REMORA_PKI/complete" ]; then
  new_credentials
  say "certificates"
fi
kubeconfig admin "$KUBECONFIG"
for name in kube-controller-manager kube-scheduler kube-proxy kubelet; do kubeconfig "$name" "$REMORA_CONF/$name.kubeconfig"; done
configure_network
configure_containerd
configure_kubelet
prepare_host

etcd=http://127.0.0.1:$REMORA_ETCD_PORT
peer=http://127.0.0.1:$REMORA_ETCD_PEER_PORT
# No fsync: this data need not survive a crash, and the disk may be slow.
start etcd "$REMORA_BIN/etcd" --name remora --data-dir "$REMORA_RUN/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
  --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "remora=$peer"

# MutatingAdmissionPolicy is a beta API before Kubernetes 1.36.
gates=()
minor=$("$REMORA_BIN/kube-apiserver" --version | cut -d . -f 2)
[ "$minor" -ge 36 ] || gates=(--feature-gates=MutatingAdmissionPolicy=true --runtime-config=admissionregistration.k8s.io/v1beta1=true)

# Aggregator routing: calls to webhooks go directly to the pod, without kube-proxy. InternalIP: otherwise logs and exec
# would look up the node's name in a DNS that does not know it.
start kube-apiserver "$REMORA_BIN/kube-apiserver" \
  --etcd-servers="$etcd" \
  --bind-address="$REMORA_NODE_IP" --advertise-address="$REMORA_NODE_IP" --secure-port="$REMORA_API_PORT" \
  --tls-cert-file="$REMORA_PKI/apiserver.crt" --tls-private-key-file="$REMORA_PKI/apiserver.key" \
  --client-ca-file="$REMORA_PKI/ca.crt" --token-auth-file="$REMORA_PKI/tokens.csv" \
  --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  "${gates[@]}" \
  --service-cluster-ip-range="$REMORA_SERVICE_CIDR" \
  --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file="$REMORA_PKI/service-accounts.pub" \
  --service-account-signing-key-file="$REMORA_PKI/service-accounts.key" \
  --kubelet-certificate-authority="$REMORA_PKI/ca.crt" --kubelet-preferred-address-types=InternalIP \
  --kubelet-client-certificate="$REMORA_PKI/apiserver-kubelet.crt" \
  --kubelet-client-key="$REMORA_PKI/apiserver-kubelet.key" \
  --enable-aggregator-routing=true --allow-privileged=true --profiling=false

start containerd containerd --config "$REMORA_CONF/containerd.toml"
eventually 30 "containerd answers" ctr version
./import.sh pause:1 /pause "$REMORA_TOOLS/pause:/pause"

eventually 60 "API server is ready" kubectl get --raw /readyz
# With the default rate limit, the controller manager's own start takes seconds.
start kube-controller-manager "$REMORA_BIN/kube-controller-manager" \
  --kubeconfig="$REMORA_CONF/kube-controller-manager.kubeconfig" --use-service-account-credentials \
  --leader-elect=false --secure-port=0 --profiling=false --kube-api-qps=1000 --kube-api-burst=1000 \
  --root-ca-file="$REMORA_PKI/ca.crt" --service-account-private-key-file="$REMORA_PKI/service-accounts.key" \
  --cluster-signing-cert-file="$REMORA_PKI/ca.crt" --cluster-signing-key-file="$REMORA_PKI/ca.key" \
  --service-cluster-ip-range="$REMORA_SERVICE_CIDR" --allocate-node-cidrs=false
start kube-scheduler "$REMORA_BIN/kube-scheduler" --kubeconfig="$REMORA_CONF/kube-scheduler.kubeconfig" \
  --leader-elect=false --secure-port=0 --profiling=false
start kubelet "$REMORA_BIN/kubelet" --config="$REMORA_CONF/kubelet.yaml" --kubeconfig="$REMORA_CONF/kubelet.kubeconfig" \
  --root-dir="$REMORA_RUN/kubelet" --cert-dir="$REMORA_PKI" \
  --hostname-override="$REMORA_NODE" --node-ip="$REMORA_NODE_IP"
# kube-proxy trusts chains that an earlier instance left, even emptied ones, so it starts with none.
alive kube-proxy || drop_service_rules
start kube-proxy "$REMORA_BIN/kube-proxy" --config="$REMORA_CONF/kube-proxy.yaml"
start coredns "$REMORA_BIN/coredns" "$REMORA_CONF/Corefile"

eventually 60 "node is registered" kubectl get node "$REMORA_NODE"
eventually 60 "default service account exists" kubectl get serviceaccount default
kubectl wait --for=condition=Ready "node/$REMORA_NODE" --timeout=90s >/dev/null || fail "the node does not become Ready; logs are in $REMORA_LOG"
for name in "${REMORA_PROCESSES[@]}"; do
  alive "$name" || fail "$name has ended: $(tail -n 3 "$REMORA_LOG/$name.log")"
done
say "node is Ready: Kubernetes $(kubectl version -o json | jq -r .serverVersion.gitVersion); use it with: source $REMORA_CLUSTER_SOURCE/env.sh"
