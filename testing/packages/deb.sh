#!/bin/sh
# Installs the Debian package, uses it as its user does, and removes it, in a root of its own over this machine's: what is written goes into
# memory, and nothing of the machine changes. Wants root, or a user who may be root in a namespace.
#
# usage: deb.sh PACKAGE
set -eu

fail() {
    echo "deb.sh: $*" >&2
    exit 1
}

# Waits for at most half a minute until a command succeeds.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "waited in vain for: $*"
        sleep 0.05
    done
}

# Becomes what the unit's own line starts, with the settings of the unit and of the file that it names, as systemd has them for the service.
service() {
    unit=/usr/lib/systemd/system/monolock.service
    mkdir -p /var/lib/monolock /var/log/monolock /run/monolock
    while IFS= read -r setting; do
        setting=$(printf '%s\n' "$setting" | sed 's,%S,/var/lib,g')
        export "${setting?}"
    done <<SETTINGS
$(sed -n 's/^Environment=//p' "$unit"; grep -v -e '^#' -e '^$' "$(sed -n 's/^EnvironmentFile=-\{0,1\}//p' "$unit")" || true)
SETTINGS
    exec $(sed -n 's/^ExecStart=//p' "$unit") >/tmp/said 2>&1
}

inside() {
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    # Images of containers are told to leave documents out.
    rm -f /etc/dpkg/dpkg.cfg.d/*
    dpkg --install /tmp/monolock.deb >/tmp/dpkg 2>&1 || { cat /tmp/dpkg >&2; fail "it cannot be installed"; }
    dpkg --verify monolock || fail "what is installed is not what was packed"

    # What is there.
    monolock --version | grep -q '^monolock [0-9]' || fail "monolock --version"
    for page in /usr/share/man/man1/monolock.1.gz /usr/share/man/man1/monolock-run.1.gz; do
        gzip --test "$page" || fail "$page"
    done
    for file in /usr/share/bash-completion/completions/monolock /usr/share/fish/vendor_completions.d/monolock.fish \
        /usr/share/zsh/vendor-completions/_monolock /usr/share/doc/monolock/copyright /usr/lib/systemd/system/monolock.socket; do
        [ -s "$file" ] || fail "there is no $file"
    done
    bash -c '. /usr/share/bash-completion/completions/monolock && complete -p monolock >/dev/null' || fail "completions of bash"
    [ ! -e /etc/systemd/system/multi-user.target.wants/monolock.service ] || fail "it was enabled by its installation"

    # Its administrator says where it listens, and starts it.
    cat >>/etc/default/monolock <<SETTINGS
MONOLOCK_LISTEN_ADDRESS=127.0.0.1:7070
MONOLOCK_OPS_LISTEN_ADDRESS=127.0.0.1:9090
MONOLOCK_AUDIT_LOG=/var/log/monolock/audit.log
SETTINGS
    service &
    server=$!
    await monolock healthcheck --ops 127.0.0.1:9090 >/tmp/health 2>&1
    said=$(monolock run --server 127.0.0.1:7070 --quiet nightly -- sh -c 'echo "$MONOLOCK_LOCK"')
    [ "$said" = nightly ] || fail "the command under the lock said: $said"
    [ -s /var/lib/monolock/tokens ] || fail "the unit's setting of the token file did not reach the server"

    # Reload: the audit log is opened anew, as after a rotation.
    mv /var/log/monolock/audit.log /var/log/monolock/audit.log.1
    kill -HUP "$server"
    await test -e /var/log/monolock/audit.log
    monolock run --server 127.0.0.1:7070 --quiet nightly -- true
    await grep -q '"lock":"nightly"' /var/log/monolock/audit.log

    # Stop.
    kill -TERM "$server"
    wait "$server" || fail "it stopped with $?: $(cat /tmp/said)"

    # Removal keeps the settings, a purge keeps nothing.
    dpkg --remove monolock >/tmp/dpkg 2>&1 || { cat /tmp/dpkg >&2; fail "it cannot be removed"; }
    [ ! -e /usr/bin/monolock ] || fail "the removal left the program"
    grep -q 127.0.0.1:9090 /etc/default/monolock || fail "the removal took the settings away"
    dpkg --install /tmp/monolock.deb >/tmp/dpkg 2>&1 || { cat /tmp/dpkg >&2; fail "it does not come back after its removal"; }
    grep -q 127.0.0.1:9090 /etc/default/monolock || fail "coming back took the settings away"
    dpkg --purge monolock >/tmp/dpkg 2>&1 || { cat /tmp/dpkg >&2; fail "it cannot be purged"; }
    left=$(find /etc /usr /var/lib /var/log -name '*monolock*' ! -path '/var/lib/dpkg/*' -newer /tmp/begun 2>/dev/null || true)
    [ -z "$left" ] || fail "the purge left $left"
    echo "the Debian package: installed, started, reloaded, stopped, removed and purged"
}

# In the namespace: this machine's files below, memory above them.
in_namespace() {
    mount -t tmpfs -o mode=755 monolock "$2"
    mkdir "$2/upper" "$2/work" "$2/root"
    mount -t overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" overlay "$2/root"
    for folder in tmp run; do
        mount -t tmpfs -o mode=1777 monolock "$2/root/$folder"
    done
    mount -t proc proc "$2/root/proc"
    mount --rbind /dev "$2/root/dev"
    ip link set lo up
    cp "$1" "$2/root/tmp/monolock.deb"
    cp "$0" "$2/root/tmp/deb.sh"
    touch -d '1 second ago' "$2/root/tmp/begun"
    exec chroot "$2/root" /bin/sh /tmp/deb.sh --inside
}

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
case "$1" in
--inside) inside ;;
--in-namespace) in_namespace "$2" "$3" ;;
*)
    folder=$(mktemp -d)
    trap 'rmdir "$folder"' EXIT
    user=
    [ "$(id -u)" = 0 ] || user="--user --map-root-user"
    # shellcheck disable=SC2086 # None, or two words.
    unshare $user --mount --net --pid --fork --kill-child sh "$0" --in-namespace "$1" "$folder"
    ;;
esac
