{{/*
Fails if a value is missing that has no empty default. Every template includes this before it reads a value: a missing value, or a
missing section, would else be an error of the template language, or an object that lacks something.
*/}}
{{- define "remora.check" -}}
{{- range $path := list
  "image.operator.repository" "image.operator.pullPolicy" "image.sidecar.repository" "image.sidecar.pullPolicy"
  "allowedOrigins" "proxy" "caBundle.key" "delivery.secrets" "crds.enabled" "crds.keep" "rbac.aggregateToDefaultRoles"
  "logLevel" "controller.replicas" "controller.maxDocumentBytes" "controller.maxSnapshotBytes"
  "controller.serviceAccount.create" "controller.apiPriority.enabled" "injection.by" "sidecar.await" "sidecar.logLevel"
  "sidecar.resources.requests.cpu" "sidecar.resources.requests.memory" "sidecar.resources.limits" "webhook.replicas"
  "webhook.port" "webhook.adminPort" "webhook.failurePolicy" "webhook.timeoutSeconds" "webhook.serviceAccount.create"
  "webhook.certificates.source" "auditor" "receiver" "networkPolicy.metrics" "networkPolicy.dns.ports"
  "networkPolicy.apiServer.ports" "networkPolicy.upstreams" "monitoring.dashboard" "monitoring.alerts"
  "monitoring.podMonitors.operator.enabled" "monitoring.podMonitors.sidecars.enabled" -}}
{{- $value := $.Values.AsMap -}}
{{- range splitList "." $path }}{{ if kindIs "map" $value }}{{ $value = index $value . }}{{ end }}{{ end -}}
{{- if kindIs "invalid" $value -}}
{{- fail (printf "%s is missing, as after an upgrade with --reuse-values from an older chart: upgrade with --reset-then-reuse-values. If your values set it, or its section, to null, remove that line" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails if the defaults of sidecars conflict. Both ways of injection include this before they use them. */}}
{{- define "remora.sidecar.check" -}}
{{- $sidecar := .Values.sidecar -}}
{{- $request := $sidecar.resources.requests.cpu -}}
{{- with $sidecar.resources.limits.cpu -}}
{{- if gt (include "remora.milli" $request | int64) (include "remora.milli" . | int64) -}}
{{- fail (printf "sidecar.resources.requests.cpu is %s, above sidecar.resources.limits.cpu, which is %s: lower the request, or raise the limit" $request .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* An amount of CPU in thousandths of a core. */}}
{{- define "remora.milli" -}}
{{- if hasSuffix "m" . }}{{ trimSuffix "m" . }}{{ else }}{{ round (mulf . 1000) 0 | int64 }}{{ end -}}
{{- end -}}
