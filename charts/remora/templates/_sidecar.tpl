{{/* Fails if the defaults of sidecars are missing or conflict. Both ways of injection include this before they use them. */}}
{{- define "remora.sidecar.check" -}}
{{- $sidecar := required "sidecar is missing, as after an upgrade with --reuse-values from an older chart: upgrade with --reset-then-reuse-values" .Values.sidecar -}}
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
