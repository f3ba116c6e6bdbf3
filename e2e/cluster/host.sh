# What the cluster needs of the machine itself, and gives back: sourced by up.sh and down.sh.
# $REMORA_RUN/host says that something was taken; it holds the kernel settings as they were.

# The kubelet sets the first four as it likes them. Without the last, the answer of a Service's pod would go to a
# neighbour on the bridge under the pod's address instead of the Service's.
REMORA_SETTINGS=(vm.overcommit_memory kernel.panic kernel.panic_on_oops net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables)

# refuse_when_taken: fails when something else is where the cluster would go.
refuse_when_taken() {
  local port holder network=${REMORA_NODE_IP%.*.*}.0.0/15 route
  for port in "$REMORA_ETCD_PORT" "$REMORA_ETCD_PEER_PORT" "$REMORA_API_PORT" "$REMORA_KUBELET_PORT" \
    "$REMORA_KUBELET_HEALTH_PORT" "$REMORA_PROXY_METRICS_PORT" "$REMORA_PROXY_HEALTH_PORT"; do
    holder=$(ss -Hltnp "sport = :$port")
    [ -z "$holder" ] || fail "port $port, which the local cluster would use, is taken: $holder"
  done
  [ ! -e "$REMORA_RUN/host" ] || return 0 # what follows is our own, of before
  ! ip link show "$REMORA_BRIDGE" >/dev/null 2>&1 || fail "there is a link $REMORA_BRIDGE already, and it is not ours: ip link del $REMORA_BRIDGE"
  route=$(ip -4 route show root "${REMORA_NODE_IP%.*}.0/24"; ip -4 route show root "$REMORA_SERVICE_CIDR")
  [ -z "$route" ] || fail "addresses that the local cluster would use are routed elsewhere: $route"
  ! nft list table ip kube-proxy >/dev/null 2>&1 || fail "another cluster's kube-proxy keeps its rules in the nftables table kube-proxy; two cannot share it"
}

# cgroup_roots: where control groups are mounted, a line for each hierarchy. Version 1 has many, and beside them one
# of version 2 that runc uses as well.
cgroup_roots() {
  awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) ~ /^cgroup2?$/) print $5 }' /proc/self/mountinfo
}

prepare_host() {
  local root module
  for module in br_netfilter overlay; do
    modprobe "$module" 2>/dev/null || true # a kernel may have them built in
  done
  [ -e /proc/sys/net/bridge ] || fail "the kernel has no br_netfilter: Services would not work"
  [ -e "$REMORA_RUN/host" ] || sysctl -e "${REMORA_SETTINGS[@]}" >"$REMORA_RUN/host"
  sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
  for root in $(cgroup_roots); do mkdir -p "$root/$REMORA_CGROUP"; done
  if ! ip link show "$REMORA_BRIDGE" >/dev/null 2>&1; then
    ip link add "$REMORA_BRIDGE" type bridge
    ip address add "$REMORA_NODE_IP/24" dev "$REMORA_BRIDGE"
    ip link set "$REMORA_BRIDGE" up
  fi
}

drop_service_rules() {
  local family
  for family in ip ip6; do nft delete table "$family" kube-proxy 2>/dev/null || true; done
}

# pod_processes: the ids of all processes in pods, as each hierarchy has them.
pod_processes() {
  local root
  for root in $(cgroup_roots); do
    find "$root/$REMORA_CGROUP" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  done | sort -un
}

# release_host: everything goes that prepare_host, the kubelet, containerd and the network plugins made outside our
# own directory.
release_host() {
  local root mounted result remaining socket
  for mounted in $(awk -v under="$REMORA_RUN/" 'index($5, under) == 1 { print $5 }' /proc/self/mountinfo | sort -r); do
    umount -l "$mounted"
  done
  ip -o link show master "$REMORA_BRIDGE" 2>/dev/null | grep -o 'link-netns [^ ]*' | while read -r _ mounted; do
    ip netns delete "$mounted"
  done
  ip link delete "$REMORA_BRIDGE" 2>/dev/null || true
  drop_service_rules
  for _ in {1..50}; do # a group is busy until its last process is quite dead
    remaining=
    for root in $(cgroup_roots); do
      find "$root/$REMORA_CGROUP" -depth -type d -exec rmdir {} \; 2>/dev/null || true
      if [ -d "$root/$REMORA_CGROUP" ]; then remaining=1; fi
    done
    [ -n "$remaining" ] || break
    sleep 0.1
  done
  # The network plugins remember each attachment as NETWORK-CONTAINER-INTERFACE; the loopback's name is not ours alone.
  for result in /var/lib/cni/results/remora-*-eth0; do
    result=${result##*/remora-}
    rm -f /var/lib/cni/results/*-"${result%-eth0}"-*
  done
  ! [ -d /var/log/containers ] || find /var/log/containers -lname "$REMORA_RUN/*" -delete
  for socket in /var/lib/kubelet/device-plugins/kubelet.sock /run/containerd/s/*; do
    if [ -S "$socket" ] && [ -z "$(ss -Hlx src "$socket")" ]; then rm -f "$socket"; fi
  done
  # Directories with names that cannot be chosen; another cluster's are not empty.
  rmdir /var/lib/cni/results /var/lib/cni /var/log/containers /var/lib/kubelet/device-plugins /var/lib/kubelet \
    /run/containerd/s /run/containerd 2>/dev/null || true
  sysctl -qep "$REMORA_RUN/host" || true
  rm -f "$REMORA_RUN/host"
}

# what_is_left: says what should be gone after release_host and is not.
what_is_left() {
  local name root
  for name in "${REMORA_PROCESSES[@]}"; do
    if alive "$name"; then echo "process $name"; fi
  done
  ip -o link show "$REMORA_BRIDGE" 2>/dev/null
  awk -v under="$REMORA_RUN/" 'index($5, under) == 1 { print "mount", $5 }' /proc/self/mountinfo
  for root in $(cgroup_roots); do
    if [ -d "$root/$REMORA_CGROUP" ]; then echo "control group $root/$REMORA_CGROUP"; fi
  done
  nft list tables | grep -E ' kube-proxy$'
}
