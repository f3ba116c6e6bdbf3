{{/*
A Deployment of one part of the operator: a dict of context, part, values, arguments (a list), ports (a map of names to
numbers), secrets (a map of volumes to Secrets, which are mounted at /etc/remora/<volume>) and caBundle (a ConfigMap and its key,
mounted at /etc/remora/ca-bundle/ca.crt).
*/}}
{{- define "remora.deployment" -}}
{{- $name := printf "%s-%s" (include "remora.name" .context) .part -}}
{{- $admin := int (.values.adminPort | default 8080) -}}
{{- $onHost := .values.hostNetwork | default false -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ .context.Release.Namespace | quote }}
  labels:
    {{- include "remora.labels" .context | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
spec:
  replicas: {{ .values.replicas }}
  strategy:
    rollingUpdate:
      {{- if $onHost }}
      # A node has each port once, so a new pod may have to wait until an old one has ended.
      maxSurge: 0
      maxUnavailable: 1
      {{- else }}
      maxSurge: 1
      maxUnavailable: 0
      {{- end }}
  selector:
    matchLabels:
      {{- include "remora.selector" (list .context .part) | nindent 6 }}
  template:
    metadata:
      labels:
        {{- merge (include "remora.selector" (list .context .part) | fromYaml) (.values.podLabels | default dict) (.context.Values.commonLabels | default dict) | toYaml | nindent 8 }}
      {{- with .values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "remora.account" (list .context .part) | quote }}
      {{- if $onHost }}
      hostNetwork: true
      {{- end }}
      {{- with .values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" $onHost) }}
      dnsPolicy: {{ . }}
      {{- end }}
      {{- with .values.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .context.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      nodeSelector:
        {{- toYaml (merge (dict) (.values.nodeSelector | default dict) (dict "kubernetes.io/os" "linux")) | nindent 8 }}
      {{- with .values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- $pods := dict "labelSelector" (dict "matchLabels" (include "remora.selector" (list .context .part) | fromYaml)) }}
        {{- $overNodes := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" }}
        {{- range .values.topologySpreadConstraints | default (list $overNodes) }}
        - {{ if hasKey . "labelSelector" }}{{ toYaml . | nindent 10 | trim }}{{ else }}{{ merge (dict) . $pods | toYaml | nindent 10 | trim }}{{ end }}
        {{- end }}
      {{- if or .secrets .caBundle }}
      volumes:
        {{- range $volume, $secret := .secrets }}
        - name: {{ $volume }}
          secret:
            secretName: {{ $secret | quote }}
        {{- end }}
        {{- with .caBundle }}
        - name: ca-bundle
          configMap:
            name: {{ .configMap | quote }}
            items: [{key: {{ .key | quote }}, path: ca.crt}]
        {{- end }}
      {{- end }}
      containers:
        - name: {{ .part }}
          image: {{ include "remora.image" (list .context "operator") }}
          imagePullPolicy: {{ .context.Values.image.operator.pullPolicy }}
          args:
            - {{ .part }}
            {{- range .arguments }}
            - {{ . | quote }}
            {{- end }}
            - --admin-listen=[::]:{{ $admin }}
            - --log-level={{ .context.Values.logLevel }}
            - --log-json
          env:
            # With these values the C library's heap returns free memory. Its defaults keep tens of megabytes after one large request.
            - name: MALLOC_ARENA_MAX
              value: "2"
            - name: MALLOC_MMAP_THRESHOLD_
              value: "131072"
            - name: MALLOC_TRIM_THRESHOLD_
              value: "131072"
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            {{- with .values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: admin
              containerPort: {{ $admin }}
            {{- range $port, $number := .ports }}
            - name: {{ $port }}
              containerPort: {{ $number }}
            {{- end }}
          startupProbe:
            httpGet: {path: /healthz, port: admin}
            periodSeconds: 1
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: admin}
            periodSeconds: 20
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: admin}
            periodSeconds: 2
          resources:
            {{- .values.resources | default dict | toYaml | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          {{- if or .secrets .caBundle }}
          volumeMounts:
            {{- range $volume, $secret := .secrets }}
            - name: {{ $volume }}
              mountPath: /etc/remora/{{ $volume }}
              readOnly: true
            {{- end }}
            {{- if .caBundle }}
            - name: ca-bundle
              mountPath: /etc/remora/ca-bundle
              readOnly: true
            {{- end }}
          {{- end }}
          securityContext:
            {{- include "remora.securityContext" .values.securityContext | nindent 12 }}
{{- end }}

{{/* Security context of a container of the operator, with the fields of the given one added or in place of its own. */}}
{{- define "remora.securityContext" -}}
{{- $own := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) "readOnlyRootFilesystem" true "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- range $field, $value := . }}{{ $_ := set $own $field $value }}{{ end -}}
{{- toYaml $own -}}
{{- end }}
{{- /* A PodDisruptionBudget for the replicas of a part. With one replica, it would block the drain of a node. */}}
{{- define "remora.disruptionBudget" -}}
{{- if gt (int .values.replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "remora.name" .context }}-{{ .part }}
  namespace: {{ .context.Release.Namespace | quote }}
  labels:
    {{- include "remora.labels" .context | nindent 4 }}
spec:
  maxUnavailable: 1
  # A pod that is not ready does not delay the drain of a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "remora.selector" (list .context .part) | nindent 6 }}
{{- end }}
{{- end }}
