# Changes to the machine that the cluster needs, and their reversal: sourced by up.sh and down.sh. The file
# $REMORA_RUN/host exists if a change was made; it contains the previous kernel settings.

# The kubelet sets the first four to its own values. Without the last one, an answer of a Service's pod to a neighbour
# on the bridge would come from the pod's address instead of the Service's.
REMORA_SETTINGS=(vm.overcommit_memory kernel.panic kernel.panic_on_oops net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables)

# refuse_when_taken: fails if another program uses the cluster's ports, link, addresses or nftables table.
refuse_when_taken() {
  local port holder network=${REMORA_NODE_IP%.*.*}.0.0/15 route
  for port in "$REMORA_ETCD_PORT" "$REMORA_ETCD_PEER_PORT" "$REMORA_API_PORT" "$REMORA_KUBELET_PORT" \
    "$REMORA_KUBELET_HEALTH_PORT" "$REMORA_PROXY_METRICS_PORT" "$REMORA_PROXY_HEALTH_PORT"; do
    holder=$(ss -Hltnp "sport = :$port")
    [ -z "$holder" ] || fail "port $port, which the local cluster would use, is taken: $holder"
  done
  [ ! -e "$REMORA_RUN/host" ] || return 0 # the items below are the cluster's own, from an earlier start
  ! ip link show "$REMORA_BRIDGE" >/dev/null 2>&1 || fail "there is a link $REMORA_BRIDGE already, and it is not ours: ip link del $REMORA_BRIDGE"
  route=$(ip -4 route show root "${REMORA_NODE_IP%.*}.0/24"; ip -4 route show root "$REMORA_SERVICE_CIDR")
  [ -z "$route" ] || fail "addresses that the local cluster would use are routed elsewhere: $route"
  ! nft list table ip kube-proxy >/dev/null 2>&1 || fail "another cluster's kube-proxy keeps its rules in the nftables table kube-proxy; two cannot share it"
}

# cgroup_roots: prints the mount point of each cgroup hierarchy, one per line. Version 1 has many, and beside them one
# of version 2 that runc uses as well.
cgroup_roots() {
  awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) ~ /^cgroup2?$/) print $5 }' /proc/self/mountinfo
}

prepare_host() {
  local root module direction
  for module in br_netfilter overlay; do
    modprobe "$module" 2>/dev/null || true # they may be built into the kernel
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
  # Docker drops whatever it does not forward itself, also between pods.
  if iptables -S FORWARD 2>/dev/null | grep -qx -- '-P FORWARD DROP'; then
    stop_forwarding
    for direction in -i -o; do iptables -I FORWARD "$direction" "$REMORA_BRIDGE" -j ACCEPT; done
  fi
}

stop_forwarding() {
  local direction
  for direction in -i -o; do iptables -D FORWARD "$direction" "$REMORA_BRIDGE" -j ACCEPT 2>/dev/null || true; done
}

drop_service_rules() {
  local family
  for family in ip ip6; do nft delete table "$family" kube-proxy 2>/dev/null || true; done
}

# pod_processes: prints the IDs of all processes in pods, from each hierarchy.
pod_processes() {
  local root
  for root in $(cgroup_roots); do
    find "$root/$REMORA_CGROUP" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  done | sort -un
}

# release_host: removes everything that prepare_host, the kubelet, containerd and the network plugins created outside
# the cluster's own directory.
release_host() {
  local root mounted result remaining socket
  for mounted in $(awk -v under="$REMORA_RUN/" 'index($5, under) == 1 { print $5 }' /proc/self/mountinfo | sort -r); do
    umount -l "$mounted"
  done
  ip -o link show master "$REMORA_BRIDGE" 2>/dev/null | grep -o 'link-netns [^ ]*' | while read -r _ mounted; do
    ip netns delete "$mounted"
  done
  ip link delete "$REMORA_BRIDGE" 2>/dev/null || true
  stop_forwarding
  drop_service_rules
  for _ in {1..50}; do # a cgroup is busy until its last process has exited completely
    remaining=
    for root in $(cgroup_roots); do
      find "$root/$REMORA_CGROUP" -depth -type d -exec rmdir {} \; 2>/dev/null || true
      if [ -d "$root/$REMORA_CGROUP" ]; then remaining=1; fi
    done
    [ -n "$remaining" ] || break
    sleep 0.1
  done
  # The network plugins record each attachment as NETWORK-CONTAINER-INTERFACE; the loopback network's name may belong to
  # another cluster too.
  for result in /var/lib/cni/results/remora-*-eth0; do
    result=${result##*/remora-}
    rm -f /var/lib/cni/results/*-"${result%-eth0}"-*
  done
  ! [ -d /var/log/containers ] || find /var/log/containers -lname "$REMORA_RUN/*" -delete
  for socket in /var/lib/kubelet/device-plugins/kubelet.sock /run/containerd/s/*; do
    if [ -S "$socket" ] && [ -z "$(ss -Hlx src "$socket")" ]; then rm -f "$socket"; fi
  done
  # The names of these directories are fixed; those of another cluster are not empty and stay.
  rmdir /var/lib/cni/results /var/lib/cni /var/log/containers /var/lib/kubelet/device-plugins /var/lib/kubelet \
    /run/containerd/s /run/containerd 2>/dev/null || true
  sysctl -qep "$REMORA_RUN/host" || true
  rm -f "$REMORA_RUN/host"
}

# what_is_left: prints what release_host should have removed and did not.
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
  iptables -S FORWARD 2>/dev/null | grep -w "$REMORA_BRIDGE"
}
