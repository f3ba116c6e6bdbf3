#!/usr/bin/env bash
# squid.sh DIRECTORY ADDRESS:PORT SERVER USER PASSWORD
# Runs Debian's squid until it is stopped, with its files in the directory. It opens tunnels to SERVER, a name that only the
# proxy knows and that is this machine, for this user; it refuses all other servers. The program comes from the packages without
# installing them: an installed package would start a service.
set -euo pipefail
usage="usage: squid.sh DIRECTORY ADDRESS:PORT SERVER USER PASSWORD"
directory=${1:?$usage} address=${2:?$usage} server=${3:?$usage} user=${4:?$usage} password=${5:?$usage}
cd "$(dirname "$0")"
. ./say.sh

cache=${XDG_CACHE_HOME:-$HOME/.cache}/remora/squid
packages=(squid squid-common squid-langpack libecap3 libltdl7 libtdb1 libnetfilter-conntrack3 libnfnetlink0)
mkdir -p "$cache"
exec {lock}>"$cache/lock"
flock "$lock" # another start may be at it
if [ ! -e "$cache/complete" ]; then
  command -v apt-get >/dev/null || fail "the proxy is Debian's squid: this is not Debian, so it is not downloaded for you"
  (cd "$cache" && { apt-get download -qq "${packages[@]}" || { apt-get update -qq && apt-get download -qq "${packages[@]}"; }; } &&
    for package in *.deb; do dpkg-deb --extract "$package" .; done) >&2
  touch "$cache/complete"
fi
exec {lock}>&-

# squid runs as another user, who cannot read the cache directory of root.
cp -r "$cache/usr" "$directory"
usr=$directory/usr
printf '%s:%s\n' "$user" "$(openssl passwd -6 "$password")" >"$directory/users"
printf '127.0.0.1 %s\n' "$server" >"$directory/hosts"
cat >"$directory/squid.conf" <<CONF
http_port $address
cache_effective_user nobody
cache_effective_group nogroup
hosts_file $directory/hosts
auth_param basic program $usr/lib/squid/basic_ncsa_auth $directory/users
auth_param basic realm remora
acl server dstdomain $server
acl known proxy_auth REQUIRED
http_access deny !server
http_access allow known
http_access deny all
access_log stdio:$directory/access.log
cache_log $directory/cache.log
pid_filename none
unlinkd_program $usr/lib/squid/unlinkd
pinger_enable off
pinger_program $usr/lib/squid/pinger
logfile_daemon $usr/lib/squid/log_file_daemon
cache deny all
mime_table $usr/share/squid/mime.conf
icon_directory $usr/share/squid/icons
error_directory $usr/share/squid-langpack/templates
coredump_dir $directory
shutdown_lifetime 0 seconds
CONF
chown -R nobody "$directory"
export LD_LIBRARY_PATH=$usr/lib/$(gcc -print-multiarch)
exec "$usr/sbin/squid" -N -f "$directory/squid.conf"
