#!/usr/bin/env bash
# demo.sh: shows Remora in the cluster that KUBECONFIG names, step by step, and checks each step. `make demo` starts a
# cluster and calls this script; with an existing cluster (and its images: REMORA_IMAGE_PREFIX, REMORA_IMAGE_TAG), call
# it directly. It changes only the namespaces remora-system and remora-demo.
set -euo pipefail
cd "$(dirname "$0")"

system=remora-system
namespace=remora-demo
prefix=${REMORA_IMAGE_PREFIX:-remora.local}
tag=${REMORA_IMAGE_TAG:-dev}
label=remora.dev/e2e

bold= plain=
if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; fi

began=$(date +%s%N)
elapsed() { # [SINCE [UNTIL]]: prints the seconds since SINCE, or since the start
  local hundredths=$(((${2:-$(date +%s%N)} - ${1:-$began}) / 10000000))
  printf '%d.%02d' $((hundredths / 100)) $((hundredths % 100))
}
step() { printf '\n%s%6s s  %s%s\n' "$bold" "$(elapsed)" "$*" "$plain"; }
note() { printf '           %s\n' "$*"; }
show() { # COMMAND...: prints the command as a user would type it, and its output
  note "\$ $*"
  "$@" | sed 's/^/           /'
}
fail() {
  printf '\nerror: %s\n' "$*" >&2
  kubectl -n "$namespace" get pods,fenv,configmaps,events >&2 || true
  kubectl -n "$system" logs --all-containers --prefix --tail 40 --selector app.kubernetes.io/name=remora >&2 || true
  exit 1
}
eventually() { # SECONDS WHAT COMMAND...: waits until the command succeeds; prints a line every ten seconds
  local end=$((SECONDS + $1)) next=$((SECONDS + 10)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "this did not come: $what"
    if [ "$SECONDS" -ge "$next" ]; then
      note "… waiting for: $what"
      next=$((SECONDS + 10))
    fi
    sleep 0.5
  done
}
own() { # NAMESPACE: creates it, or refuses a namespace that the demo does not own
  if kubectl get namespace "$1" >/dev/null 2>&1; then
    [ -n "$(kubectl get namespaces --selector "$label,kubernetes.io/metadata.name=$1" --output name)" ] ||
      fail "the namespace $1 is not the demo's (no label $label): use a cluster without it"
  else
    kubectl create namespace "$1" >/dev/null
    kubectl label namespace "$1" "$label=demo" >/dev/null
  fi
}
upstream() { # PATH FILE: sends a file to the stub's control side
  kubectl replace --raw "/api/v1/namespaces/$namespace/services/upstream:control/proxy$1" -f "$2" >/dev/null
}
apply() { sed "s|E2E_IMAGE|$prefix/remora-e2e:$tag|" "demo/$1" | kubectl -n "$namespace" apply -f - | sed 's/^/           /'; }

for program in kubectl helm; do
  command -v "$program" >/dev/null || fail "$program is not on PATH: source e2e/cluster/env.sh"
done
kubectl version >/dev/null 2>&1 || { echo "error: no cluster is there: run 'make demo', or set KUBECONFIG" >&2; exit 1; }

step "Install Remora with Helm"
kubectl delete namespace "$namespace" --ignore-not-found --wait >/dev/null
own "$system"
own "$namespace"
note "\$ helm upgrade --install remora charts/remora --namespace $system --set allowedOrigins={…} --set image…"
helm upgrade --install remora ../charts/remora --namespace "$system" --wait --timeout 2m \
  --set "allowedOrigins={http://upstream.$namespace.svc:8000}" \
  --set "image.operator.repository=$prefix/remora-operator,image.operator.tag=$tag" \
  --set "image.sidecar.repository=$prefix/remora-sidecar,image.sidecar.tag=$tag" >/dev/null || fail "helm could not install the chart"
show kubectl -n "$system" get pods

step "Start something that answers like Flagsmith, and give it an environment with two flags"
apply upstream.yaml
kubectl -n "$namespace" rollout status deployment/upstream --timeout 60s >/dev/null || fail "the upstream did not start"
eventually 30 "the upstream takes the document" upstream /environments/ser.demo demo/document.json

step "Declare the environment: a Secret with its key, and a FeatureEnvironment"
apply environment.yaml
kubectl -n "$namespace" wait --for=condition=Ready fenv/storefront --timeout 60s >/dev/null || fail "the FeatureEnvironment is not Ready"
show kubectl -n "$namespace" get fenv
show kubectl -n "$namespace" get configmaps --selector remora.dev/environment=storefront

step "Start an application with the annotation remora.dev/inject: storefront"
apply application.yaml
kubectl -n "$namespace" rollout status deployment/shop --timeout 60s >/dev/null || fail "the application did not start"
pod=$(kubectl -n "$namespace" get pods --selector app=shop --output jsonpath='{.items[0].metadata.name}')
show kubectl -n "$namespace" get pod "$pod" --output 'jsonpath=containers: {.spec.initContainers[*].name} {.spec.containers[*].name}{"\n"}'
restarts=$(kubectl -n "$namespace" get pod "$pod" --output jsonpath='{.status.containerStatuses[0].restartCount}')
[ "$restarts" = 0 ] || fail "the application's first request was not answered: it was restarted $restarts times"

step "Its first line asked localhost, once and without a retry"
show kubectl -n "$namespace" logs "$pod" --container app
kubectl -n "$namespace" logs "$pod" --container app | grep '^first answer .*"classic"' >/dev/null || fail "the first answer is not the document's"

step "Flip a flag upstream: checkout becomes \"express\""
flipped=$(date +%s%N)
upstream /environments/ser.demo/flags/checkout <(printf '{"value": "express"}') || fail "the upstream did not take it"
note "The operator polls every 2 s, publishes, and nudges the pods: kubelet would else look after their volumes every 60 to 90 s."
changed() { kubectl -n "$namespace" logs "$pod" --container app --timestamps | grep 'answer changed: .*"express"'; }
eventually 150 "the application gets \"express\" from localhost" changed
seen=$(elapsed "$flipped" "$(date --date "$(changed | head -n 1 | cut -d ' ' -f 1)" +%s%N)")
show kubectl -n "$namespace" logs "$pod" --container app --tail 1
note "${bold}From the flip to the application's answer: $seen s$plain"

step "What the sidecar costs"
metrics=$(kubectl get --raw "/api/v1/namespaces/$namespace/pods/$pod:4778/proxy/metrics") || fail "the sidecar has no metrics"
mebibytes() { # METRIC
  local bytes
  bytes=$(awk -v name="$1" '$1 == name { printf "%d", $2 }' <<<"$metrics")
  [ "${bytes:-0}" -gt 0 ] || fail "the sidecar does not say $1"
  printf '%d.%02d MiB' $((bytes / 1048576)) $((bytes % 1048576 * 100 / 1048576))
}
resident=$(mebibytes process_resident_memory_bytes)
private=$(mebibytes process_anonymous_memory_bytes)
note "resident memory $resident, of which nobody else's and no file's: $private"
show kubectl -n "$namespace" get fenv

step "Done: every step was checked"
cat <<EOF

           Look around:
             source e2e/cluster/env.sh                      # kubectl and helm for the local cluster
             kubectl -n $namespace get fenv,pods,configmaps
             kubectl -n $namespace describe fenv storefront
             kubectl -n $namespace get pod $pod -o yaml   # what the webhook added
             kubectl get --raw /api/v1/namespaces/$namespace/pods/$pod:4778/proxy/metrics
             kubectl get --raw '/api/v1/namespaces/$namespace/pods/$pod:8080/proxy/ask?path=/ofrep/v1/evaluate/flags&method=POST'
           Clean up:
             kubectl delete namespace $namespace
             helm uninstall remora --namespace $system && kubectl delete namespace $system
             make cluster-down                              # if it is the local cluster
EOF
