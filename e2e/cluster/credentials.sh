# Certificates, tokens and kubeconfigs of the local cluster: sourced by up.sh. They are created once per cluster.

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$REMORA_PKI/$1.key"; }

# new_certificate NAME SUBJECT EXTENSION...: creates a certificate signed by the cluster's CA.
new_certificate() {
  local name=$1 subject=$2
  shift 2
  new_key "$name"
  printf '%s\n' "$@" >"$REMORA_PKI/$name.ext"
  openssl req -new -key "$REMORA_PKI/$name.key" -subj "$subject" |
    openssl x509 -req -days 3650 -CA "$REMORA_PKI/ca.crt" -CAkey "$REMORA_PKI/ca.key" -CAcreateserial \
      -extfile "$REMORA_PKI/$name.ext" -out "$REMORA_PKI/$name.crt" 2>/dev/null
}

new_authority() {
  new_key ca
  openssl req -x509 -new -key "$REMORA_PKI/ca.key" -subj /CN=remora-local-cluster -days 3650 -out "$REMORA_PKI/ca.crt"
}

# new_token NAME USER GROUP: adds a line to the API server's token file, and writes the token to its own file.
new_token() {
  local token
  token=$(openssl rand -hex 20)
  printf '%s' "$token" >"$REMORA_PKI/$1.token"
  printf '%s,%s,%s,"%s"\n' "$token" "$2" "$2" "$3" >>"$REMORA_PKI/tokens.csv"
}

new_credentials() {
  local kubernetes=DNS:kubernetes.default names
  names="DNS:localhost,IP:127.0.0.1,IP:$REMORA_NODE_IP,IP:$REMORA_SERVICE_IP,DNS:kubernetes"
  names+=",$kubernetes,$kubernetes.svc,$kubernetes.svc.cluster.local"
  (
    umask 077
    new_authority
    new_certificate apiserver /CN=kube-apiserver "subjectAltName=$names" extendedKeyUsage=serverAuth
    new_certificate kubelet "/CN=$REMORA_NODE" "subjectAltName=DNS:$REMORA_NODE,IP:$REMORA_NODE_IP" extendedKeyUsage=serverAuth
    new_certificate apiserver-kubelet /O=system:masters/CN=kube-apiserver extendedKeyUsage=clientAuth
    openssl genrsa -out "$REMORA_PKI/service-accounts.key" 2048 2>/dev/null
    openssl pkey -in "$REMORA_PKI/service-accounts.key" -pubout -out "$REMORA_PKI/service-accounts.pub"
    rm -f "$REMORA_PKI/tokens.csv"
    new_token admin admin system:masters
    new_token kubelet "system:node:$REMORA_NODE" system:nodes
    for component in kube-controller-manager kube-scheduler kube-proxy; do
      new_token "$component" "system:$component" system:authenticated
    done
    touch "$REMORA_PKI/complete"
  )
}

# kubeconfig NAME FILE: writes a kubeconfig.
kubeconfig() {
  write "$2" <<EOF
apiVersion: v1
kind: Config
current-context: remora
clusters:
- name: remora
  cluster:
    server: https://$REMORA_NODE_IP:$REMORA_API_PORT
    certificate-authority-data: $(base64 -w0 <"$REMORA_PKI/ca.crt")
users:
- name: $1
  user: {token: $(<"$REMORA_PKI/$1.token")}
contexts:
- name: remora
  context: {cluster: remora, user: $1}
EOF
  chmod 600 "$2"
}
