# Configuration files of the cluster's processes: sourced by up.sh.

# write FILE: writes standard input to FILE. A file with the same content is not touched, because kube-proxy exits when
# its configuration is rewritten.
write() {
  mkdir -p "$(dirname "$1")"
  cat >"$1.new"
  if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

configure_network() {
  write "$REMORA_CONF/cni/10-remora.conflist" <<EOF
{
  "cniVersion": "1.0.0",
  "name": "remora",
  "plugins": [{
    "type": "bridge", "bridge": "$REMORA_BRIDGE", "isGateway": true, "hairpinMode": true, "ipMasq": false,
    "ipam": {
      "type": "host-local", "dataDir": "$REMORA_RUN/addresses", "routes": [{"dst": "0.0.0.0/0"}],
      "ranges": [[{"subnet": "$REMORA_POD_CIDR", "gateway": "$REMORA_NODE_IP"}]]
    }
  }]
}
EOF
  write "$REMORA_CONF/Corefile" <<EOF
.:53 {
    bind $REMORA_NODE_IP
    errors
    kubernetes cluster.local in-addr.arpa {
        kubeconfig $KUBECONFIG
        pods insecure
        ttl 1
    }
}
EOF
  # Connection tracking limits belong to the host: zeros leave them unchanged. A Service follows its pods within the
  # sync period; the default of a second is too long for tests that begin when a pod is Ready.
  write "$REMORA_CONF/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $REMORA_CONF/kube-proxy.kubeconfig}
hostnameOverride: $REMORA_NODE
bindAddress: $REMORA_NODE_IP
clusterCIDR: $REMORA_POD_CIDR
metricsBindAddress: 127.0.0.1:$REMORA_PROXY_METRICS_PORT
healthzBindAddress: 127.0.0.1:$REMORA_PROXY_HEALTH_PORT
nftables: {minSyncPeriod: 100ms}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
EOF
}

# Without CAP_SYS_RESOURCE (in a sandbox), no process may protect itself from the kernel's OOM killer, so no component
# requests that.
configure_containerd() {
  write "$REMORA_CONF/containerd.toml" <<EOF
version = 2
root = "$REMORA_RUN/containerd"
state = "$REMORA_RUN/containerd-state"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "$CONTAINERD_ADDRESS"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "remora.local/pause:1"
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "$REMORA_CONF/cni"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  Root = "$REMORA_RUN/runc"
  SystemdCgroup = false
EOF
}

# Images are never garbage-collected, because there is no registry to pull them from again, and a full disk of the
# developer must not evict pods.
configure_kubelet() {
  write "$REMORA_CONF/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $REMORA_NODE_IP
port: $REMORA_KUBELET_PORT
healthzPort: $REMORA_KUBELET_HEALTH_PORT
tlsCertFile: $REMORA_PKI/kubelet.crt
tlsPrivateKeyFile: $REMORA_PKI/kubelet.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $REMORA_PKI/ca.crt}}
authorization: {mode: Webhook}
clusterDomain: cluster.local
clusterDNS: [$REMORA_NODE_IP]
resolvConf: ""
containerRuntimeEndpoint: unix://$CONTAINERD_ADDRESS
cgroupDriver: cgroupfs
cgroupRoot: /$REMORA_CGROUP
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
podLogsDir: $REMORA_RUN/pod-logs
volumePluginDir: $REMORA_RUN/volume-plugins
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
  imagefs.inodesFree: 0%
EOF
}
