#!/usr/bin/env bash
# Stops the local cluster and returns what it took from the machine. --purge also deletes its state (objects, images,
# certificates, logs); without --purge, the next up.sh uses that state again.
set -uo pipefail # without -e: a failed step must not prevent the later ones
cd "$(dirname "$0")" || exit 1
. ./env.sh
. ./say.sh
. ./processes.sh
. ./host.sh

case ${1-} in '' | --purge) ;; *) fail "usage: down.sh [--purge]" ;; esac
[ -d "$REMORA_RUN" ] || exit 0
[ "$(id -u)" = 0 ] || fail "the local cluster was brought up by root, and only root can end it"
if [ -z "${REMORA_LOCKED-}" ]; then # up.sh calls this with its own lock held
  exec {lock}>"$REMORA_CLUSTER/lock"
  flock "$lock"
fi

# Processes that would start pods again stop first. None of them loses data on SIGKILL.
for name in kubelet kube-scheduler kube-controller-manager kube-proxy coredns; do stop "$name" KILL; done

node=
if [ -e "$REMORA_RUN/host" ]; then
  node=1
  for pid in $(pod_processes); do kill -s KILL "$pid" 2>/dev/null || true; done
  namespaces=()
  if alive containerd; then
    for container in $(ctr containers list -q); do
      mapfile -t -O "${#namespaces[@]}" namespaces < <(ctr containers info "$container" |
        jq -r '.Spec.linux.namespaces[]? | select(.type == "network" and .path != null).path | select(startswith("/var/run/netns/"))')
    done
    ctr tasks list -q | xargs -r ctr tasks delete --force >/dev/null 2>&1 || true
    ctr containers list -q | xargs -r ctr containers delete >/dev/null 2>&1 || true
  fi
  stop containerd TERM
  for pid in $(shims); do kill -s KILL "$pid" 2>/dev/null || true; done
  release_host
  for namespace in $(printf '%s\n' "${namespaces[@]}" | sort -u); do
    [ ! -e "$namespace" ] || ip netns delete "${namespace##*/}"
  done
  rm -rf "$REMORA_RUN"/{kubelet/pods,containerd-state,pod-logs,addresses}
fi
stop kube-apiserver KILL # on SIGTERM it would wait a minute for open watches
stop etcd TERM

left=
if [ -n "$node" ]; then left=$(what_is_left); fi
[ -z "$left" ] || fail "the local cluster is not all gone, so its state stays in $REMORA_RUN; there is still:"$'\n'"$left"
if [ "${1-}" = --purge ]; then rm -rf "$REMORA_RUN"; fi
say "the local cluster is down"
