{{/* Generated: REMORA_REWRITE=1 cargo test -p remora-operator --test policy */}}
{{- define "remora.policy.variables" -}}
- name: annotations
  expression: 'has(object.metadata.annotations) ? object.metadata.annotations : {}'
- name: defaults
  expression: 'has(namespaceObject.metadata.annotations) ? namespaceObject.metadata.annotations : {}'
- name: inject
  expression: variables.annotations['remora.dev/inject']
- name: environments
  expression: variables.inject.split(',', 10).map(name, name.find('(?s)[^ ](.*[^ ])?'))
- name: environmentErrors
  expression: |-
    variables.environments.transformList(place, name, place <= 8,
      name.contains('/') ? 'names without a namespace: a pod reads the environments of its own namespace only' : name in ['true', 'enabled', 'false', 'disabled'] ? 'names of FeatureEnvironments of the pod\'s namespace, separated by commas (lower case letters, digits and -, at most 40 characters each), or false: it says which environments, not whether'
      : !name.matches('^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$') ? 'names of FeatureEnvironments of the pod\'s namespace, separated by commas (lower case letters, digits and -, at most 40 characters each), or false'
      : variables.environments.indexOf(name) < place ? 'a list that names ' + name + ' once' : '').filter(error, error != '')
      + (size(variables.environments) > 8 ? ['a list of at most 8 environments'] : [])
- name: portOption
  expression: variables.annotations[?'remora.dev/port'].or(variables.defaults[?'remora.dev/port'])
- name: cpuRequestOption
  expression: variables.annotations[?'remora.dev/cpu-request'].or(variables.defaults[?'remora.dev/cpu-request'])
- name: cpuLimitOption
  expression: variables.annotations[?'remora.dev/cpu-limit'].or(variables.defaults[?'remora.dev/cpu-limit'])
- name: memoryRequestOption
  expression: variables.annotations[?'remora.dev/memory-request'].or(variables.defaults[?'remora.dev/memory-request'])
- name: memoryLimitOption
  expression: variables.annotations[?'remora.dev/memory-limit'].or(variables.defaults[?'remora.dev/memory-limit'])
- name: awaitOption
  expression: variables.annotations[?'remora.dev/await'].or(variables.defaults[?'remora.dev/await'])
- name: logLevelOption
  expression: variables.annotations[?'remora.dev/log-level'].or(variables.defaults[?'remora.dev/log-level'])
- name: envOption
  expression: variables.annotations[?'remora.dev/env'].or(variables.defaults[?'remora.dev/env'])
- name: socketOption
  expression: variables.annotations[?'remora.dev/unix-socket'].or(variables.defaults[?'remora.dev/unix-socket'])
- name: cpuRequestValid
  expression: |-
    variables.cpuRequestOption.optMap(text, text.matches('^[0-9]{1,15}(([.][0-9]{1,3})?()|m)$') && quantity(text).compareTo(quantity('1m')) >= 0
      && quantity(text).compareTo(quantity('1024')) <= 0)
- name: cpuLimitValid
  expression: |-
    variables.cpuLimitOption.optMap(text, text.matches('^[0-9]{1,15}(([.][0-9]{1,3})?()|m)$') && quantity(text).compareTo(quantity('1m')) >= 0
      && quantity(text).compareTo(quantity('1024')) <= 0)
- name: cpuRequestExceedsLimit
  expression: |-
    variables.cpuRequestValid.orValue(false) && variables.cpuLimitValid.orValue(false)
      && quantity(variables.cpuRequestOption.value()).isGreaterThan(quantity(variables.cpuLimitOption.value()))
- name: cpuRequestChosen
  expression: 'variables.cpuRequestExceedsLimit && !(''remora.dev/cpu-request'' in variables.annotations) ? optional.none() : variables.cpuRequestOption'
- name: cpuLimitChosen
  expression: 'variables.cpuRequestExceedsLimit && !(''remora.dev/cpu-limit'' in variables.annotations) ? optional.none() : variables.cpuLimitOption'
- name: memoryRequestValid
  expression: |-
    variables.memoryRequestOption.optMap(text, text.matches('^[0-9]{1,15}(([.][0-9]{1,3})?(|k|M|G|T|Ki|Mi|Gi|Ti))$') && quantity(text).compareTo(quantity('4Mi')) >= 0
      && quantity(text).compareTo(quantity('1Ti')) <= 0)
- name: memoryLimitValid
  expression: |-
    variables.memoryLimitOption.optMap(text, text.matches('^[0-9]{1,15}(([.][0-9]{1,3})?(|k|M|G|T|Ki|Mi|Gi|Ti))$') && quantity(text).compareTo(quantity('4Mi')) >= 0
      && quantity(text).compareTo(quantity('1Ti')) <= 0)
- name: memoryRequestExceedsLimit
  expression: |-
    variables.memoryRequestValid.orValue(false) && variables.memoryLimitValid.orValue(false)
      && quantity(variables.memoryRequestOption.value()).isGreaterThan(quantity(variables.memoryLimitOption.value()))
- name: memoryRequestChosen
  expression: 'variables.memoryRequestExceedsLimit && !(''remora.dev/memory-request'' in variables.annotations) ? optional.none() : variables.memoryRequestOption'
- name: memoryLimitChosen
  expression: 'variables.memoryRequestExceedsLimit && !(''remora.dev/memory-limit'' in variables.annotations) ? optional.none() : variables.memoryLimitOption'
- name: awaitMillis
  expression: |-
    [variables.awaitOption.orValue('10s')].map(text, text.endsWith('ms') ? int(text.substring(0, size(text) - 2))
      : int(text.substring(0, size(text) - 1)) * (text.endsWith('m') ? 60000 : 1000))[0]
- name: chosenVariables
  expression: |-
    [variables.envOption.orValue('OFREP_ENDPOINT,FLAGSMITH_API_URL')].map(text, text == 'none' ? []
      : text.split(',').map(name, name.find('(?s)[^ ](.*[^ ])?')))[0]
- name: checks
  expression: |-
    [
      {'key': dyn('remora.dev/inject'), 'value': dyn(variables.inject), 'valid': dyn(size(variables.environmentErrors) == 0), 'expected': dyn(size(variables.environmentErrors) > 0 ? variables.environmentErrors[0] : '')},
      {'key': dyn('remora.dev/port'), 'value': dyn(variables.portOption.orValue('')), 'valid': dyn(variables.portOption.optMap(text, text.matches('^[0-9]{4,5}$') && int(text) >= 1024 && int(text) <= 65534).orValue(true)), 'expected': dyn('a port from 1024 to 65534, such as 4777; health and metrics take the next one')},
      {'key': dyn('remora.dev/cpu-request'), 'value': dyn(variables.cpuRequestOption.orValue('')), 'valid': dyn(variables.cpuRequestValid.orValue(true)), 'expected': dyn('an amount of CPU from 1m to 1024, such as 10m or 0.5')},
      {'key': dyn('remora.dev/cpu-limit'), 'value': dyn(variables.cpuLimitOption.orValue('')), 'valid': dyn(variables.cpuLimitValid.orValue(true)), 'expected': dyn('an amount of CPU from 1m to 1024, such as 10m or 0.5')},
      {'key': dyn('remora.dev/cpu-request'), 'value': dyn(variables.cpuRequestOption.orValue('')), 'valid': dyn(!(variables.cpuRequestExceedsLimit && ('remora.dev/cpu-request' in variables.annotations) == ('remora.dev/cpu-limit' in variables.annotations))), 'expected': dyn('at most ' + variables.cpuLimitOption.orValue('') + ', which is its remora.dev/cpu-limit')},
      {'key': dyn('remora.dev/memory-request'), 'value': dyn(variables.memoryRequestOption.orValue('')), 'valid': dyn(variables.memoryRequestValid.orValue(true)), 'expected': dyn('an amount of memory from 4Mi to 1Ti, such as 32Mi')},
      {'key': dyn('remora.dev/memory-limit'), 'value': dyn(variables.memoryLimitOption.orValue('')), 'valid': dyn(variables.memoryLimitValid.orValue(true)), 'expected': dyn('an amount of memory from 4Mi to 1Ti, such as 32Mi')},
      {'key': dyn('remora.dev/memory-request'), 'value': dyn(variables.memoryRequestOption.orValue('')), 'valid': dyn(!(variables.memoryRequestExceedsLimit && ('remora.dev/memory-request' in variables.annotations) == ('remora.dev/memory-limit' in variables.annotations))), 'expected': dyn('at most ' + variables.memoryLimitOption.orValue('') + ', which is its remora.dev/memory-limit')},
      {'key': dyn('remora.dev/await'), 'value': dyn(variables.awaitOption.orValue('')), 'valid': dyn(variables.awaitOption.optMap(text, text.matches('^[0-9]{1,7}(ms|s|m)$') && variables.awaitMillis <= 3600000).orValue(true)), 'expected': dyn('a duration up to an hour in ms, s or m, such as 10s; 0s does not wait')},
      {'key': dyn('remora.dev/log-level'), 'value': dyn(variables.logLevelOption.orValue('')), 'valid': dyn(variables.logLevelOption.optMap(text, text in ['error', 'warn', 'info', 'debug']).orValue(true)), 'expected': dyn('one of error, warn, info, debug')},
      {'key': dyn('remora.dev/env'), 'value': dyn(variables.envOption.orValue('')), 'valid': dyn(variables.chosenVariables.all(name, name in ['OFREP_ENDPOINT', 'FLAGSMITH_API_URL'])), 'expected': dyn('none, or a comma list out of OFREP_ENDPOINT, FLAGSMITH_API_URL')},
      {'key': dyn('remora.dev/unix-socket'), 'value': dyn(variables.socketOption.orValue('')), 'valid': dyn(variables.socketOption.optMap(text, text in ['true', 'false']).orValue(true)), 'expected': dyn('true or false; the socket is /var/run/remora-socket/remora.sock in every container')}
    ]
- name: invalid
  expression: |-
    variables.checks.filter(check, !check.valid).map(check,
      'annotation ' + check.key + (check.key in variables.annotations ? '' : ' of namespace ' + request.namespace) + ' is ' + '"' + check.value.substring(0, size(check.value) > 64 ? 64 : size(check.value)).split('').map(letter,
      letter in ['"', '\\'] ? '\\' + letter : letter.matches('^[ -~\\p{L}\\p{N}]$') ? letter
      : '\\u{' + '%x'.format([letter]).substring('%x'.format([letter]).startsWith('0') ? 1 : 0) + '}').join('')
      + (size(check.value) > 64 ? '…"' : '"') + ', but must be ' + check.expected)
- name: port
  expression: int(variables.portOption.orValue('4777'))
- name: awaitSeconds
  expression: (variables.awaitMillis + 999) / 1000
- name: await
  expression: 'variables.awaitMillis % 1000 == 0 ? string(variables.awaitSeconds) + ''s'' : string(variables.awaitMillis) + ''ms'''
- name: logLevel
  expression: variables.logLevelOption.orValue('info')
- name: socket
  expression: variables.socketOption.orValue('false') == 'true'
- name: init
  expression: 'has(object.spec.initContainers) ? object.spec.initContainers : []'
- name: containers
  expression: 'has(object.spec.containers) ? object.spec.containers : []'
- name: volumes
  expression: 'has(object.spec.volumes) ? object.spec.volumes : []'
- name: all
  expression: variables.init + variables.containers
- name: others
  expression: variables.all.filter(container, container.name != 'remora')
- name: skipWarning
  expression: |-
    'kubernetes.io/config.mirror' in variables.annotations ? 'the pod gets no Remora sidecar: the API server cannot change a mirror pod; create it as a Pod object'
      : object.spec.?os.?name.orValue('') == 'windows' || object.spec.?nodeSelector[?'kubernetes.io/os'].orValue('') == 'windows' ? 'the pod gets no Remora sidecar: Windows is not supported; run the pod on Linux'
      : object.spec.?hostNetwork.orValue(false) ? 'the pod gets no Remora sidecar: with hostNetwork, its localhost is the node\'s; remove hostNetwork'
      : ''
- name: position
  expression: variables.init.map(container, container.name).indexOf('remora')
- name: isSidecar
  expression: |-
    variables.position >= 0 && [variables.init[variables.position]].all(ours,
      ours.?restartPolicy.orValue('') == 'Always'
      && variables.environments.all(environment, (has(ours.volumeMounts) ? ours.volumeMounts : []).exists(mount, mount.mountPath == '/var/run/remora/' + environment))
      && (!variables.socket || (has(ours.volumeMounts) ? ours.volumeMounts : []).exists(mount, mount.mountPath == '/var/run/remora-socket')))
- name: volumeNames
  expression: |-
    variables.environments.map(environment, 'remora-' + environment)
      + ['no-token-remora']
      + (variables.socket ? ['socket-remora'] : [])
- name: nameConflicts
  expression: |-
    size(variables.all) - size(variables.others) == 1 && variables.isSidecar ? []
      : size(variables.all) == size(variables.others) ? variables.volumeNames.filter(name,
        variables.volumes.exists(volume, volume.name == name)).map(name,
        'the pod has a volume named ' + '"' + name + '"' + ', which is a name of the Remora sidecar: rename it, or remove it if the pod is a copy of an injected one')
      : ['the pod has a container named ' + '"remora"' + ', which is a name of the Remora sidecar: rename it, or remove it if the pod is a copy of an injected one']
- name: portConflicts
  expression: |-
    variables.others.filter(container, has(container.ports)).map(container, container.ports.filter(declared,
      declared.?protocol.orValue('TCP') == 'TCP' && int(declared.containerPort) in [variables.port, variables.port + 1])
      .map(declared,
        'container ' + '"' + container.name + '"' + ' declares port ' + string(int(declared.containerPort)) + ', which the Remora sidecar listens on: set annotation remora.dev/port to another port (the sidecar serves flags there, and health and metrics on the next port)')).filter(messages, size(messages) > 0).map(messages, messages[0])
- name: refusals
  expression: 'size(variables.invalid) > 0 ? variables.invalid : variables.nameConflicts + variables.portConflicts'
- name: refusal
  expression: 'variables.skipWarning != '''' || size(variables.refusals) == 0 ? '''' : string(variables.refusals[0])'
- name: podLevel
  expression: '[''requests'', ''limits''].exists(kind, object.spec.?resources[?kind].optMap(amounts, size(amounts) > 0).orValue(false))'
- name: guaranteed
  expression: |-
    variables.others.all(container, ['cpu', 'memory'].all(resource, container.?resources.?limits[?resource].optMap(limit, quantity(limit).isGreaterThan(quantity('0'))).orValue(false)
      && container.?resources.?requests[?resource].optMap(request, quantity(request).compareTo(quantity('0')) == 0
      || quantity(request).compareTo(quantity(container.resources.limits[resource])) == 0).orValue(true)))
- name: cpuLimited
  expression: variables.others.all(container, container.?resources.?limits[?'cpu'].optMap(limit, quantity(limit).isGreaterThan(quantity('0'))).orValue(false))
- name: cpuRequest
  expression: |-
    variables.podLevel ? variables.cpuRequestChosen.orValue('') : variables.guaranteed ? variables.cpuRequestChosen.or(variables.cpuLimitChosen).orValue('100m')
      : variables.cpuRequestChosen.orValue(variables.cpuLimitChosen.optMap(limit, quantity('5m').isGreaterThan(quantity(limit)) ? limit : '5m').orValue('5m'))
- name: cpuLimit
  expression: |-
    variables.podLevel ? variables.cpuLimitChosen.orValue('') : variables.guaranteed ? variables.cpuLimitChosen.or(variables.cpuRequestChosen).orValue('100m')
      : variables.cpuLimitChosen.orValue(!variables.cpuLimited ? '' : quantity(variables.cpuRequest).isGreaterThan(quantity('250m')) ? variables.cpuRequest : '250m')
- name: memoryRequest
  expression: |-
    variables.podLevel ? variables.memoryRequestChosen.orValue('') : variables.guaranteed ? variables.memoryRequestChosen.or(variables.memoryLimitChosen).orValue('32Mi')
      : variables.memoryRequestChosen.orValue(variables.memoryLimitChosen.optMap(limit, quantity('8Mi').isGreaterThan(quantity(limit)) ? limit : '8Mi').orValue('8Mi'))
- name: memoryLimit
  expression: |-
    variables.podLevel ? variables.memoryLimitChosen.orValue('') : variables.guaranteed ? variables.memoryLimitChosen.or(variables.memoryRequestChosen).orValue('32Mi')
      : variables.memoryLimitChosen.orValue(!true ? '' : quantity(variables.memoryRequest).isGreaterThan(quantity('32Mi')) ? variables.memoryRequest : '32Mi')
- name: resources
  expression: |-
    {?'requests': optional.ofNonZeroValue({?'cpu': optional.ofNonZeroValue(variables.cpuRequest), ?'memory': optional.ofNonZeroValue(variables.memoryRequest)}),
      ?'limits': optional.ofNonZeroValue({?'cpu': optional.ofNonZeroValue(variables.cpuLimit), ?'memory': optional.ofNonZeroValue(variables.memoryLimit)})}
- name: unknownAnnotations
  expression: variables.annotations.filter(key, key.startsWith('remora.dev/') && !(key in ['remora.dev/inject', 'remora.dev/port', 'remora.dev/cpu-request', 'remora.dev/memory-request', 'remora.dev/cpu-limit', 'remora.dev/memory-limit', 'remora.dev/await', 'remora.dev/log-level', 'remora.dev/unix-socket', 'remora.dev/env', 'remora.dev/injected']) && !key.startsWith('remora.dev/revision'))
- name: limits
  expression: |-
    (variables.containers + variables.init.filter(container, container.?restartPolicy.orValue('') == 'Always'))
      .filter(container, container.name != 'remora')
      .map(container, container.?resources.?limits.?memory.orValue('0')) + [variables.memoryLimit == '' ? '0' : variables.memoryLimit]
- name: memoryLimitSum
  expression: |-
    variables.limits.exists(limit, quantity(limit).compareTo(quantity('0')) <= 0) ? -1
      : variables.limits.map(limit, quantity(limit).isInteger() ? quantity(limit).asInteger()
        : int(quantity(limit).asApproximateFloat())).sum()
{{- end }}
{{- define "remora.policy.plan" -}}
- name: root
  expression: object.spec.?securityContext.?runAsUser.optMap(user, int(user) == 0).orValue(false)
- name: sidecar
  expression: |-
    {
      'args': dyn(['--snapshots', '/var/run/remora', '--listen', '127.0.0.1:' + string(variables.port), '--admin', '0.0.0.0:' + string(variables.port + 1), '--await', variables.await, '--log-level', variables.logLevel]
      + (variables.socket ? ['--listen-unix', '/var/run/remora-socket/remora.sock'] : [])
      + (variables.environments.map(environment, '--environment ' + environment).join(' ').split(' '))),
      'image': dyn('{{ include "remora.image" (list . .Values.image.sidecar) }}'),
      'imagePullPolicy': dyn('{{ .Values.image.sidecar.pullPolicy }}'),
      'name': dyn('remora'),
      'ports': dyn([{'containerPort': dyn(variables.port + 1), 'name': dyn('remora-admin'), 'protocol': dyn('TCP')}]),
      'resources': dyn(variables.resources),
      'restartPolicy': dyn('Always'),
      'securityContext': dyn(variables.root ? dyn({'allowPrivilegeEscalation': dyn(false), 'capabilities': dyn({'drop': dyn(['ALL'])}), 'readOnlyRootFilesystem': dyn(true), 'runAsNonRoot': dyn(true), 'runAsUser': dyn(65532), 'seccompProfile': dyn({'type': 'RuntimeDefault'})}) : dyn({'allowPrivilegeEscalation': dyn(false), 'capabilities': dyn({'drop': dyn(['ALL'])}), 'readOnlyRootFilesystem': dyn(true), 'runAsNonRoot': dyn(true), 'seccompProfile': dyn({'type': 'RuntimeDefault'})})),
      'startupProbe': dyn({'exec': dyn({'command': dyn(['/remora-sidecar', '--probe', '127.0.0.1:' + string(variables.port + 1)])}), 'failureThreshold': dyn(variables.awaitSeconds + 30), 'periodSeconds': dyn(1), 'timeoutSeconds': dyn(5)}),
      'terminationMessagePolicy': dyn('FallbackToLogsOnError'),
      'volumeMounts': dyn(variables.environments.map(environment, {'mountPath': dyn('/var/run/remora/' + environment), 'name': dyn('remora-' + environment), 'readOnly': dyn(true)})
      + [{'mountPath': dyn('/var/run/secrets/kubernetes.io/serviceaccount'), 'name': dyn('no-token-remora'), 'readOnly': dyn(true)}]
      + (variables.socket ? [{'mountPath': '/var/run/remora-socket', 'name': 'socket-remora'}] : []))
    }
- name: plannedVolumes
  expression: |-
    variables.environments.map(environment, {'name': dyn('remora-' + environment), 'projected': dyn({'defaultMode': dyn(292), 'sources': dyn([dyn({'configMap': dyn({'items': dyn([{'key': 'core', 'path': 'core'}]), 'name': dyn('remora-' + environment + '-v2-core'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'overrides-00', 'path': 'overrides-00'}]), 'name': dyn('remora-' + environment + '-v2-overrides-00'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'overrides-01', 'path': 'overrides-01'}]), 'name': dyn('remora-' + environment + '-v2-overrides-01'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'overrides-02', 'path': 'overrides-02'}]), 'name': dyn('remora-' + environment + '-v2-overrides-02'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'overrides-03', 'path': 'overrides-03'}]), 'name': dyn('remora-' + environment + '-v2-overrides-03'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'overrides-04', 'path': 'overrides-04'}]), 'name': dyn('remora-' + environment + '-v2-overrides-04'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'overrides-05', 'path': 'overrides-05'}]), 'name': dyn('remora-' + environment + '-v2-overrides-05'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'overrides-06', 'path': 'overrides-06'}]), 'name': dyn('remora-' + environment + '-v2-overrides-06'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'overrides-07', 'path': 'overrides-07'}]), 'name': dyn('remora-' + environment + '-v2-overrides-07'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'document-00', 'path': 'document-00'}]), 'name': dyn('remora-' + environment + '-v2-document-00'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'document-01', 'path': 'document-01'}]), 'name': dyn('remora-' + environment + '-v2-document-01'), 'optional': dyn(true)})}), dyn({'configMap': dyn({'items': dyn([{'key': 'document-02', 'path': 'document-02'}]), 'name': dyn('remora-' + environment + '-v2-document-02'), 'optional': dyn(true)})}), dyn({'downwardAPI': dyn({'items': dyn([{'fieldRef': dyn({'apiVersion': 'v1', 'fieldPath': 'metadata.annotations[\'remora.dev/revision.' + environment + '\']'}), 'path': dyn('revision')}])})})])})})
      + [{'downwardAPI': dyn({'defaultMode': dyn(292)}), 'name': dyn('no-token-remora')}]
      + (variables.socket ? [{'emptyDir': dyn({'medium': 'Memory', 'sizeLimit': '1Mi'}), 'name': dyn('socket-remora')}] : [])
- name: endpoints
  expression: |-
    ['OFREP_ENDPOINT', 'FLAGSMITH_API_URL'].filter(name, name in variables.chosenVariables)
      .map(name, {'name': name, 'value': {'OFREP_ENDPOINT': 'http://127.0.0.1:' + string(variables.port), 'FLAGSMITH_API_URL': 'http://127.0.0.1:' + string(variables.port) + '/api/v1/'}[name]})
- name: mounts
  expression: '(variables.socket ? [{''mountPath'': ''/var/run/remora-socket'', ''name'': ''socket-remora''}] : [])'
- name: laterContainers
  expression: |-
    variables.init.transformList(place, container, place > variables.position,
        {'path': dyn('/spec/initContainers/' + string(variables.position < 0 ? place + 1 : place)), 'container': dyn(container)})
      + variables.containers.transformList(place, container,
        {'path': dyn('/spec/containers/' + string(place)), 'container': dyn(container)})
{{- end }}
{{- define "remora.policy.patch" -}}
variables.skipWarning != '' || variables.refusal != '' ? [] :
  (has(object.metadata.labels) ? [] : [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}])
  + (object.metadata.?labels[?'remora.dev/sidecar'].orValue('') == 'injected' ? [] : [JSONPatch{op: 'add', path: '/metadata/labels/remora.dev~1sidecar', value: 'injected'}])
  + (variables.position >= 0 && 'remora.dev/injected' in variables.annotations ? [] : [JSONPatch{op: 'add', path: '/metadata/annotations/remora.dev~1injected', value: '{"container":"remora","environments":[' + variables.environments.map(environment, '"' + environment + '"').join(',') + '],"format":"v2","version":"0.1.0"}'}])
  + (has(object.spec.volumes) ? [] : [JSONPatch{op: 'add', path: '/spec/volumes', value: []}])
  + variables.plannedVolumes.filter(wanted, !variables.volumes.exists(volume, volume.name == wanted.name))
    .map(wanted, JSONPatch{op: 'add', path: '/spec/volumes/-', value: wanted})
  + (variables.position >= 0 || has(object.spec.initContainers) ? [] : [JSONPatch{op: 'add', path: '/spec/initContainers', value: []}])
  + (variables.position >= 0 ? [] : [JSONPatch{op: 'add', path: '/spec/initContainers/0', value: variables.sidecar}])
  + variables.laterContainers.filter(target, size(variables.endpoints) > 0 && !has(target.container.env))
    .map(target, JSONPatch{op: 'add', path: target.path + '/env', value: []})
  + (size(variables.endpoints) <= 1 ? [] : variables.laterContainers.filter(target, !(has(target.container.env)
    && target.container.env.exists(present, present.name == variables.endpoints[1].name)))
    .map(target, JSONPatch{op: 'add', path: target.path + '/env/0', value: variables.endpoints[1]}))
  + (size(variables.endpoints) <= 0 ? [] : variables.laterContainers.filter(target, !(has(target.container.env)
    && target.container.env.exists(present, present.name == variables.endpoints[0].name)))
    .map(target, JSONPatch{op: 'add', path: target.path + '/env/0', value: variables.endpoints[0]}))
  + variables.laterContainers.filter(target, size(variables.mounts) > 0 && !has(target.container.volumeMounts))
    .map(target, JSONPatch{op: 'add', path: target.path + '/volumeMounts', value: []})
  + (size(variables.mounts) <= 0 ? [] : variables.laterContainers.filter(target, !(has(target.container.volumeMounts)
    && target.container.volumeMounts.exists(present, present.mountPath == variables.mounts[0].mountPath)))
    .map(target, JSONPatch{op: 'add', path: target.path + '/volumeMounts/-', value: variables.mounts[0]}))
{{- end }}
{{- define "remora.policy.refusals" -}}
- expression: variables.refusal == ''
  message: the pod cannot have the sidecar that it requests
  messageExpression: variables.refusal
  reason: Forbidden
- expression: variables.skipWarning != '' || variables.refusal != '' || variables.position >= 0
  message: 'the pod requests flags and has no sidecar: Remora''s MutatingAdmissionPolicy was not applied, or another policy or webhook removed the sidecar; check the policy, its binding, and the others'
  reason: Forbidden
{{- end }}
{{- define "remora.policy.warnings" -}}
- expression: variables.skipWarning == ''
  message: the pod gets no Remora sidecar
  messageExpression: variables.skipWarning
  reason: Forbidden
- expression: |-
    variables.skipWarning != '' || variables.refusal != ''
      || size(variables.unknownAnnotations) == 0
  message: the pod has an annotation that is unknown to Remora
  messageExpression: |-
    variables.unknownAnnotations.map(key, 'annotation ' + '"' + key.substring(0, size(key) > 64 ? 64 : size(key)).split('').map(letter,
      letter in ['"', '\\'] ? '\\' + letter : letter.matches('^[ -~\\p{L}\\p{N}]$') ? letter
      : '\\u{' + '%x'.format([letter]).substring('%x'.format([letter]).startsWith('0') ? 1 : 0) + '}').join('')
      + (size(key) > 64 ? '…"' : '"') + ' is unknown to Remora and has no effect: correct its name, or remove it').join('; ')
  reason: Forbidden
- expression: |-
    variables.skipWarning != '' || variables.refusal != ''
      || variables.podLevel || !variables.guaranteed
      || quantity(variables.cpuRequest).compareTo(quantity(variables.cpuLimit)) == 0
      && quantity(variables.memoryRequest).compareTo(quantity(variables.memoryLimit)) == 0
  message: 'requests and limits of the sidecar differ, so the pod is Burstable instead of Guaranteed: set both to the same amounts'
  reason: Forbidden
- expression: |-
    variables.skipWarning != '' || variables.refusal != ''
      || variables.memoryLimitSum < 0 || variables.memoryLimitSum >= 24000000
  message: the pod's memory limits are small
  messageExpression: '''the pod\''s memory limits add up to '' + string(variables.memoryLimitSum) + '' bytes, too few to update a snapshot above '' + string(variables.memoryLimitSum / 2) + '' bytes: raise them'''
  reason: Forbidden
{{- end }}
{{- define "remora.policy.slots" -}}
8
{{- end }}
