#!/bin/sh
# Installs the Debian package on a machine of its own, uses it as its administrator does, and removes it. The machine is this one's files
# with memory above them, and this one's systemd as the first process of its namespaces: nothing that is written stays. Wants root.
#
# usage: deb.sh PACKAGE
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

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

package() {
    dpkg "$@" >/srv/dpkg 2>&1 || fail "dpkg $*: $(cat /srv/dpkg)"
}

# Whether systemd says of a unit what is expected.
says() {
    said=$(systemctl "$1" "$2" || true)
    [ "$said" = "$3" ] || fail "$2 is $said, and not $3: $(journalctl --no-pager --lines 30)"
}

main_pid() {
    systemctl show --property MainPID --value monolock.service
}

# Calls the program until it succeeds: a server on a busy machine may answer later than it waits, and nothing else may be wrong.
answered() {
    until monolock "$@" >/srv/said 2>&1; do
        grep -q 'no answer within' /srv/said || fail "monolock $*: $(cat /srv/said)"
    done
}

# A claim on a lock, which is granted.
claim() {
    answered run --server 127.0.0.1:7070 --quiet nightly -- true
}

# On the machine, as a service of it.
inside() {
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    # Images of containers are told to leave documents out.
    rm -f /etc/dpkg/dpkg.cfg.d/*
    # An index of manual pages is not needed, and takes its time.
    rm -f /var/lib/man-db/auto-update
    touch -d '1 second ago' /srv/begun
    package --install /srv/monolock.deb
    dpkg --verify monolock || fail "what is installed is not what was packed"

    # What is there.
    monolock --version | grep -q '^monolock [0-9]' || fail "monolock --version"
    for page in /usr/share/man/man1/monolock.1.gz /usr/share/man/man1/monolock-run.1.gz; do
        gzip --test "$page" || fail "$page"
    done
    for file in /usr/share/bash-completion/completions/monolock /usr/share/fish/vendor_completions.d/monolock.fish \
        /usr/share/zsh/vendor-completions/_monolock /usr/share/doc/monolock/copyright /usr/share/doc/monolock/THIRD-PARTY-LICENSES.txt; do
        [ -s "$file" ] || fail "there is no $file"
    done
    bash -c '. /usr/share/bash-completion/completions/monolock && complete -p monolock >/dev/null' || fail "completions of bash"
    for unit in monolock.service monolock.socket; do
        says is-enabled "$unit" disabled
        says is-active "$unit" inactive
    done

    # Its administrator says what it does, and starts it.
    cat >>/etc/default/monolock <<SETTINGS
MONOLOCK_OPS_LISTEN_ADDRESS=127.0.0.1:9090
MONOLOCK_AUDIT_LOG=/var/log/monolock/audit.log
SETTINGS
    systemctl start monolock.service || fail "it does not start: $(journalctl --no-pager --lines 30)"
    answered healthcheck --ops 127.0.0.1:9090
    claim
    [ "$(stat --format %U "/proc/$(main_pid)")" != root ] || fail "it runs as root"
    [ -s /var/lib/monolock/tokens ] || fail "there is no mark of the tokens"

    # Reload: the audit log is opened anew, as after a rotation, a moment after the signal.
    mv /var/log/monolock/audit.log /var/log/monolock/audit.log.1
    systemctl reload monolock.service || fail "it does not reload"
    await [ -e /var/log/monolock/audit.log ]
    claim
    await grep -q '"lock":"nightly"' /var/log/monolock/audit.log

    # An upgrade: what ran runs anew, with the settings as they are.
    before=$(main_pid)
    package --install /srv/monolock.deb
    says is-active monolock.service active
    [ "$(main_pid)" != "$before" ] || fail "the upgrade left the old program running"
    claim
    systemctl stop monolock.service || fail "it does not stop"
    [ "$(systemctl show --property Result --value monolock.service)" = success ] || fail "it did not stop in order"
    package --install /srv/monolock.deb
    says is-active monolock.service inactive

    # By its socket it starts with the first who comes, and an upgrade keeps the socket.
    systemctl enable --now monolock.socket 2>/dev/null || fail "there is no socket"
    says is-active monolock.service inactive
    claim
    await systemctl --quiet is-active monolock.service
    package --install /srv/monolock.deb
    says is-active monolock.socket active
    claim

    # A removal keeps the settings and the state, and coming back finds them.
    package --remove monolock
    for unit in monolock.service monolock.socket; do
        says is-active "$unit" inactive
    done
    [ ! -e /usr/bin/monolock ] || fail "the removal left the program"
    grep -q 127.0.0.1:9090 /etc/default/monolock || fail "the removal took the settings away"
    [ -s /var/lib/private/monolock/tokens ] || fail "the removal took the mark of the tokens away"
    package --install /srv/monolock.deb
    grep -q 127.0.0.1:9090 /etc/default/monolock || fail "coming back took the settings away"
    says is-enabled monolock.socket enabled
    package --purge monolock
    left=$(find /etc /usr /var/lib /var/log -name '*monolock*' ! -path '/var/lib/dpkg/*' -newer /srv/begun 2>/dev/null || true)
    [ -z "$left" ] || fail "the purge left $left"
    echo "the Debian package: installed, started, reloaded, upgraded, stopped, removed and purged"
}

# In the namespaces: builds the machine at $2 and becomes its systemd. What happens is written to the file $3.
machine() {
    mount -t tmpfs -o mode=755 monolock "$2"
    cd "$2"
    mkdir upper work root
    mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
    cd root
    for folder in run tmp srv dev; do
        mount -t tmpfs -o mode=755 monolock "$folder"
    done
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount -t cgroup2 cgroup sys/fs/cgroup
    mkdir dev/pts dev/shm dev/mqueue
    mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    for device in null zero full random urandom tty; do
        touch "dev/$device"
        mount --bind "/dev/$device" "dev/$device"
    done
    ip link set lo up

    cp "$1" srv/monolock.deb
    cp "$0" srv/deb.sh
    touch srv/log
    mount --bind "$3" srv/log
    # What else the machine has enabled does not matter, and services may be started.
    rm -rf etc/systemd/system/*.wants etc/systemd/system/monolock.* etc/machine-id usr/sbin/policy-rc.d
    : >etc/machine-id
    cat >etc/systemd/system/try.service <<UNIT
[Unit]
Description=The Debian package of monolock is tried
Wants=systemd-journald.service dbus.socket
After=systemd-journald.service dbus.socket
SuccessAction=exit-force
FailureAction=exit-force
SuccessActionExitStatus=0
FailureActionExitStatus=1

[Service]
Type=oneshot
ExecStart=/bin/sh /srv/deb.sh --inside
StandardOutput=append:/srv/log
StandardError=append:/srv/log
TimeoutStartSec=5min
UNIT
    mkdir old
    pivot_root . old
    cd /
    umount --lazy /old
    rmdir /old
    exec env -i container=namespaces PATH="$PATH" /lib/systemd/systemd --unit=try.service --log-target=journal --show-status=no
}

# In a mount namespace: $2 and $3 as above. Control groups of the machine's systemd lie below one of their own, and go with it.
around() {
    groups=$2.groups
    mkdir "$groups"
    mount -t cgroup2 cgroup "$groups"
    group=$groups/monolock-deb-$$
    mkdir "$group"
    status=0
    # shellcheck disable=SC2016 # The inner shell expands it.
    sh -c 'echo $$ >"$0/cgroup.procs"; exec unshare --cgroup --mount --pid --net --uts --ipc --fork --kill-child sh "$@"' \
        "$group" "$0" --machine "$1" "$2" "$3" || status=$?
    await rmdir_all "$group"
    umount "$groups"
    rmdir "$groups"
    exit "$status"
}

# The processes of a machine that is gone may take a moment to be gone too.
rmdir_all() {
    find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
}

case "$1" in
--inside) inside ;;
--machine) machine "$2" "$3" "$4" ;;
--around) around "$2" "$3" "$4" ;;
*)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    mkdir "$folder/machine"
    : >"$folder/log"
    status=0
    unshare --mount sh "$(realpath "$0")" --around "$(realpath "$1")" "$folder/machine" "$folder/log" || status=$?
    cat "$folder/log"
    exit "$status"
    ;;
esac
