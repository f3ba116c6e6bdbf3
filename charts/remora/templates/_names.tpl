{{/*
Prefix of all names in the release: fullnameOverride, or else remora for a release named remora, and remora-<release> for any other. A
release whose name contains remora has the prefix, too: without it, an upgrade would give all objects of an existing release other names.
*/}}
{{- define "remora.name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}{{ else if eq .Release.Name "remora" }}remora{{ else }}remora-{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{/* Labels of every object of the chart. */}}
{{- define "remora.labels" -}}
{{- merge (include "remora.labels.own" . | fromYaml) (.Values.commonLabels | default dict) | toYaml -}}
{{- end }}

{{- define "remora.labels.own" -}}
app.kubernetes.io/name: remora
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels that select the pods of one part: [context, part]. */}}
{{- define "remora.selector" -}}
app.kubernetes.io/name: remora
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/*
Reference of an image: [context, operator or sidecar]. A packed chart has the digests of its images in digests.yaml. A digest or a tag
in the values takes precedence.
*/}}
{{- define "remora.image" -}}
{{- $root := index . 0 -}}
{{- $released := get ($root.Files.Get "digests.yaml" | fromYaml) (index . 1) -}}
{{- with index $root.Values.image (index . 1) -}}
{{- $digest := .digest | default (ternary "" $released (not (empty .tag))) -}}
{{ with $root.Values.image.registry }}{{ . }}/{{ end }}{{ .repository }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ .tag | default $root.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* Name of the service account of one part: [context, part]. */}}
{{- define "remora.account" -}}
{{- $account := (index (index . 0).Values (index . 1)).serviceAccount -}}
{{- if not (or $account.create $account.name) }}{{ fail (printf "%s.serviceAccount.name is empty, and %s.serviceAccount.create is false: write the name of an account in the release's namespace, or set create to true" (index . 1) (index . 1)) }}{{ end -}}
{{- $account.name | default (printf "%s-%s" (include "remora.name" (index . 0)) (index . 1)) -}}
{{- end }}

{{/* User name of the service account of one part, as the API server knows it: [context, part]. */}}
{{- define "remora.user" -}}
system:serviceaccount:{{ (index . 0).Release.Namespace }}:{{ include "remora.account" . }}
{{- end }}

{{/* Service account of one part, unless its owner creates it: [context, part]. */}}
{{- define "remora.serviceAccount" -}}
{{- $account := (index (index . 0).Values (index . 1)).serviceAccount -}}
{{- if $account.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "remora.account" . | quote }}
  namespace: {{ (index . 0).Release.Namespace | quote }}
  labels:
    {{- include "remora.labels" (index . 0) | nindent 4 }}
  {{- with $account.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Name of the Secret with the webhook's certificate. Empty if the webhook creates the certificate. */}}
{{- define "remora.certificate" -}}
{{- with .Values.webhook.certificates -}}
{{- if eq .source "CertManager" }}{{ include "remora.name" $ }}-webhook-certificate
{{- else if eq .source "Secret" }}{{ required "webhook.certificates.secretName is empty, and webhook.certificates.source is Secret: write the name of a Secret of type kubernetes.io/tls in the release's namespace" .secretName }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A list as CEL strings, separated by commas. */}}
{{- define "remora.quoted" -}}
{{- $quoted := list -}}
{{- range . }}{{ $quoted = append $quoted (squote .) }}{{ end -}}
{{- join ", " $quoted -}}
{{- end -}}
